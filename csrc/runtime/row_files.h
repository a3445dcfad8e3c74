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

#include "runtime/guarded_map.h"
#include "runtime/open_files.h"
#include "runtime/row_read.h"

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
// But the kernel copies at half the speed of memcpy. Files whose rows were all in memory for a
// while, and that are small enough (see `mapping_budget`), are therefore mapped, and rows taken
// from there until a page fault had to wait for the disk. A mapping is in use as a whole or not at
// all: its pages count as memory of this process.
//
// Note [Files that change]
//
// Files that are opened by their paths must stay as they are. Their marks are compared when they
// are opened, and again after rows of a batch were read: that is one fstat for each file (0.25 us;
// a read takes several times as long). Rows that are mapped are copied faster than that. So where
// there are more than kFew files, one for every kBytesPerQuestion of the batch is asked for its
// marks, and others only if the last time was kAskedEvery ago. Then no batch that ends so long
// after a change has taken rows from it.
//
// A file that came open may be written to, through a memmap of its owner for one. Only its size
// counts.
class RowFiles {
 public:
  // `only`: the only file, if it came open. `mapping_budget`: how many bytes of files this process
  // may have mapped, together with those that others mapped.
  RowFiles(std::vector<RowFile> files, Descriptor only, std::int64_t mapping_budget);
  ~RowFiles();
  RowFiles(const RowFiles&) = delete;
  RowFiles& operator=(const RowFiles&) = delete;

  const RowFile& file(std::size_t number) const { return files_[number]; }

  // Bytes that the file has now. Negative: minus an errno.
  std::int64_t size(std::size_t file) const { return files_.size(file); }

  // Whether all of them are taken from memory: then where[i] is where reads[i] begins. What was
  // made of them is worth nothing unless check_mapped() returns nothing afterwards.
  bool find_mapped(std::span<const RowRead> reads, const std::byte** where) noexcept;
  std::optional<ReadFailure> check_mapped(std::span<const RowRead> reads);
  // Once a file of mapped rows is known to have changed: which one, and what can't be read.
  ReadFailure explain_change(std::span<const RowRead> reads);

  // The same step by step. To be asked once for a batch; then for each row where its file begins in
  // memory, or null if it isn't there up to byte `end`; then whether the rows seem to be in memory.
  bool may_be_mapped() noexcept;
  const std::byte* mapped(std::size_t file, std::int64_t end) noexcept;
  bool are_in_memory(std::span<const std::byte* const> where) noexcept;
  // Afterwards: whether a file that is mapped still has all its bytes; and whether none of the
  // files that a batch of so many bytes was taken from is known to have changed.
  bool is_whole(std::size_t file) noexcept;
  bool seem_unchanged(std::span<const std::size_t> files, std::size_t bytes) noexcept;

  // Asks the system for rows that will be read next; waits for nothing.
  void request(std::span<const RowRead> reads);

  // The same for rows of a later batch, if they are not in memory: that they will be then doesn't
  // make them hot. So where the system can't tell it does nothing.
  void prefetch(std::span<const RowRead> reads);

  // Reads all, in any order. Bytes are written also if it fails.
  std::optional<ReadFailure> read(std::span<const RowRead> reads, std::size_t threads);

  // Whether rows are being found in memory, so that asking for them ahead is pointless.
  bool seems_hot() const { return hits_.load(std::memory_order_relaxed) >= kHotAfter; }

 private:
  static constexpr std::int64_t kHotAfter = 256;  // rows in a row that were in memory

  static constexpr std::size_t kFew = 8;
  static constexpr std::size_t kBytesPerQuestion = std::size_t{1} << 20;
  static constexpr std::chrono::milliseconds kAskedEvery{1000};

  // A batch of small rows looks at hundreds of these, anywhere among thousands: all that it needs
  // of a file lies in one place.
  struct alignas(32) Mapping {
    std::atomic<const std::byte*> data{nullptr};  // null: its rows aren't found here
    std::atomic<std::int64_t> size{0};
    std::atomic<std::int64_t> asked{0};     // when it had its marks, in ns
    std::atomic<GuardedMap*> map{nullptr};  // null until a row of the file is hot
  };

  void request(const RowRun& run);
  bool is_cached(const RowRun& run);
  std::optional<ReadFailure> ask(RowRuns& batch, std::span<RowRun> window, std::size_t threads);
  std::size_t wait(const RowRuns& batch, std::span<RowRun> window);
  void count(std::size_t rows, std::size_t misses) noexcept;
  ReadFailure failure_of(const RowRuns& batch, const RowRun& run);
  void map(std::size_t file) noexcept;

  OpenFiles files_;
  std::int64_t mapping_budget_;
  std::atomic<std::int64_t> hits_{0};
  std::atomic<std::int64_t> prefetched_{0};  // rows that were asked for, and not read yet
  std::unique_ptr<Mapping[]> mappings_;      // of each file
};

}  // namespace pinfeed::runtime
