// Rows of files: used where they are mapped if they are in memory, else read all at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/open_files.h"

namespace pinfeed::runtime {

struct RowRun;
class RowRuns;

// Note [Reading rows]
//
// Reading a cold row through a mapping waits for the disk once every few pages, one row after the
// other. So rows are read by pread: first all rows of the batch are requested without waiting, in
// file order (preadv2 with RWF_NOWAIT where it exists; rows that are not in memory are requested by
// posix_fadvise), then several threads wait for the missing rows. Adjacent rows become one read.
//
// But the kernel copies at half the speed of memcpy. So if a file's recent rows were all in memory,
// rows are copied from its mapping, until a page fault has to wait for the disk. Files that their
// owner has mapped come with this mapping; others are mapped here.
//
// Note [Files that change]
//
// Files opened by path must not change. Their stamps are compared before rows of a batch are read.
// A stat of 256 files takes three times as long as copying their rows if these are small and in
// memory, so a batch of such rows with more than kFew files checks one file per kBytesPerCheck of
// its bytes, and others only if their last check was kCheckInterval ago.
//
// A change after the check is the owner's risk: a mapped file that is truncated ends the process
// (SIGBUS).
//
// A file that its owner has mapped may be written to, such as through a memmap. Only its size
// matters, and the owner checks it.
class RowFiles {
 public:
  explicit RowFiles(std::vector<RowFile> files);
  ~RowFiles();
  RowFiles(const RowFiles&) = delete;
  RowFiles& operator=(const RowFiles&) = delete;

  const RowFile& file(std::size_t number) const { return files_[number]; }

  // Whether the first file comes with its owner's mapping and has not become shorter since.
  bool is_mapped_whole() const {
    const OpenFiles::Open& opened = files_[0].opened;
    return opened != nullptr && stamp_of(opened->fd()).size >= files_[0].stamp.size;
  }

  // The first of these files, each listed once, that is known to have changed, and how. `bytes`: of
  // the batch.
  std::optional<ReadFailure> find_change(std::span<const std::size_t> files, std::size_t bytes);

  // The address at which a file is mapped. Null if it can't be mapped. Its stamp must just have
  // been compared.
  const std::byte* map(std::size_t file) noexcept;

  // Whether mapped rows seem to be in memory, judged by a few of their bytes.
  bool are_in_memory(std::span<const std::byte* const> bytes) noexcept;

  // Requests rows that will be read next, without waiting.
  void request(std::span<const RowRead> reads);

  // Reads all, in any order. Writes bytes even if it fails.
  std::optional<ReadFailure> read(std::span<const RowRead> reads, std::size_t threads);

  // Whether recent rows were in memory: then mapping pays off, and requesting rows ahead doesn't.
  bool seems_hot() const { return hits_.load(std::memory_order_relaxed) >= kHotAfter; }

 private:
  static constexpr std::int64_t kHotAfter = 256;  // consecutive rows that were in memory

  static constexpr std::size_t kFew = 8;
  static constexpr std::size_t kBytesPerCheck = std::size_t{1} << 20;
  static constexpr std::chrono::seconds kCheckInterval{1};

  // Random access: one batch uses hundreds of entries out of thousands.
  struct Mapped {
    std::atomic<const std::byte*> data{nullptr};  // null: not mapped yet, or the system refuses
    std::atomic<std::int64_t> asked{0};           // the time of its last check, in ns
  };

  void request(const RowRun& run);
  std::optional<ReadFailure> ask(RowRuns& batch, std::span<RowRun> window, std::size_t threads);
  std::size_t wait(const RowRuns& batch, std::span<RowRun> window);
  void count(std::size_t rows, std::size_t misses) noexcept;

  OpenFiles files_;
  std::atomic<std::int64_t> hits_{0};
  std::unique_ptr<Mapped[]> maps_;  // per file
};

}  // namespace pinfeed::runtime
