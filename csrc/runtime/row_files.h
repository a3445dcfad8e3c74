// Rows of files: looked at where they are when they are in memory, read all at once when not.
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
// Reading a cold row through a mapping waits for the disk once for every few pages, one row after
// the other. So rows are read by pread: first all rows of the batch are asked for without waiting,
// in the order of the file (preadv2 with RWF_NOWAIT where there is one; what is not in memory is
// requested by posix_fadvise), then those that were missing are waited for, by several threads.
// Rows that touch become one read.
//
// But the kernel copies at half the speed of memcpy. Rows of files whose rows were all in memory
// for a while are therefore copied from where the file is mapped, until a page fault had to wait
// for the disk. A single file came with a mapping, its owner's; those of many are mapped here.
//
// Note [Files that change]
//
// Files that are opened by their paths must stay as they are. Their marks are compared before rows
// of a batch are read. To ask 256 files of small rows that are in memory takes three times as long
// as copying those: so where such a batch has more than kFew files, one is asked for every
// kBytesPerQuestion of it, and others only if the last time was kAskedEvery ago.
//
// What happens to a file after it was asked is its owner's risk: a mapped one that is cut short
// then ends the process (SIGBUS).
//
// A file that came open may be written to, through a memmap of its owner for one. Only its size
// counts, and whoever made the mapping asks for it.
class RowFiles {
 public:
  // `only`: the only file, if it came open.
  RowFiles(std::vector<RowFile> files, Descriptor only);
  ~RowFiles();
  RowFiles(const RowFiles&) = delete;
  RowFiles& operator=(const RowFiles&) = delete;

  const RowFile& file(std::size_t number) const { return files_[number]; }

  // Bytes that the file has now. Negative: minus an errno.
  std::int64_t size(std::size_t file) const { return files_.size(file); }

  // What has happened to the first of these files, each of which is there once, that is known not
  // to be what it was. `bytes`: of the batch.
  std::optional<ReadFailure> find_change(std::span<const std::size_t> files, std::size_t bytes);

  // Where a file begins in memory, mapped by now, if it did not come open. Null if it can't be. Its
  // marks must just have been compared.
  const std::byte* map(std::size_t file) noexcept;

  // Whether mapped rows seem to be in memory, by a few bytes of them.
  bool are_in_memory(std::span<const std::byte* const> bytes) noexcept;

  // Asks the system for rows that will be read next; waits for nothing.
  void request(std::span<const RowRead> reads);

  // Reads all, in any order. Bytes are written also if it fails.
  std::optional<ReadFailure> read(std::span<const RowRead> reads, std::size_t threads);

  // Whether rows are being found in memory: then they are worth mapping, and asking for them ahead
  // is pointless.
  bool seems_hot() const { return hits_.load(std::memory_order_relaxed) >= kHotAfter; }

 private:
  static constexpr std::int64_t kHotAfter = 256;  // rows in a row that were in memory

  static constexpr std::size_t kFew = 8;
  static constexpr std::size_t kBytesPerQuestion = std::size_t{1} << 20;
  static constexpr std::chrono::seconds kAskedEvery{1};

  // Of a file that did not come open. A batch of small rows looks at hundreds of these, anywhere
  // among thousands.
  struct Mapped {
    std::atomic<const std::byte*> data{nullptr};  // null: not yet, or the system refuses
    std::atomic<std::int64_t> asked{0};           // when it last had its marks, in ns
  };

  void request(const RowRun& run);
  std::optional<ReadFailure> ask(RowRuns& batch, std::span<RowRun> window, std::size_t threads);
  std::size_t wait(const RowRuns& batch, std::span<RowRun> window);
  void count(std::size_t rows, std::size_t misses) noexcept;
  ReadFailure failure_of(const RowRuns& batch, const RowRun& run);

  OpenFiles files_;
  std::atomic<std::int64_t> hits_{0};
  std::unique_ptr<Mapped[]> maps_;  // of each file
};

}  // namespace pinfeed::runtime
