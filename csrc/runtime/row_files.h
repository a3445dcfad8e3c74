// Rows of files: looked at where they are when they are in memory, read all at once when not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/guarded_map.h"

namespace pinfeed::runtime {

// What tells a file from another of its name, or from itself before it was changed.
struct FileMarks {
  std::uint64_t inode;
  std::int64_t size;
  std::int64_t modified_ns;

  bool operator==(const FileMarks&) const = default;
};

struct RowFile {
  std::string path;
  FileMarks marks;  // compared when it is opened; not for a file that came open
};

// Bytes of a file, and where they go.
struct RowRead {
  std::size_t file;
  std::int64_t offset;
  std::size_t bytes;
  std::byte* to;
  std::size_t sample;  // the caller's number for it
};

// Why bytes could not be read.
struct ReadFailure {
  enum class Reason : std::uint8_t { system, cut_short, replaced, changed };
  Reason reason;
  int error;          // errno, for `system`
  std::int64_t size;  // of the file, for `cut_short`
  RowRead read;
};

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
class RowFiles {
 public:
  // `open_fd`: of the only file, or -1; owned from now on. `mapping_budget`: how many bytes of
  // files this process may have mapped, together with those that others mapped.
  RowFiles(std::vector<RowFile> files, int open_fd, std::int64_t mapping_budget);
  ~RowFiles();
  RowFiles(const RowFiles&) = delete;
  RowFiles& operator=(const RowFiles&) = delete;

  const RowFile& file(std::size_t number) const { return files_[number]; }

  // Bytes that the file has now. Negative: minus an errno.
  std::int64_t size(std::size_t file);

  // Whether all of them are taken from memory: then where[i] is where reads[i] begins. What was
  // made of them is worth nothing unless check_mapped() returns nothing afterwards.
  bool find_mapped(std::span<const RowRead> reads, const std::byte** where) noexcept;
  std::optional<ReadFailure> check_mapped(std::span<const RowRead> reads);

  // Asks the system for rows that will be read soon; waits for nothing.
  void expect(std::span<const RowRead> reads);

  // Reads all, in any order. Bytes are written also if it fails.
  std::optional<ReadFailure> read(std::span<const RowRead> reads, std::size_t threads);

  // Whether rows are being found in memory, so that asking for them ahead is pointless.
  bool seems_hot() const { return hits_.load(std::memory_order_relaxed) >= kHotAfter; }

 private:
  // An open file.
  class Descriptor {
   public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    int fd() const { return fd_; }

   private:
    int fd_;
  };
  using Open = std::shared_ptr<const Descriptor>;
  class Runs;  // the reads of a batch in the order of the files, those that touch put together
  struct Run;
  struct Kept;  // an open file, and whose it is

  static constexpr std::int64_t kHotAfter = 256;  // rows in a row that were in memory

  // What stays open of all RowFiles until others take its place; guarded as open_ is.
  static std::deque<Kept>& kept();

  // Null, and why, if it can't be opened or is another one by now.
  Open open(std::size_t file, ReadFailure& failure) noexcept;
  std::optional<ReadFailure> ask(Runs& batch, std::span<Run> window, std::size_t threads);
  std::size_t wait(const Runs& batch, std::span<Run> window);
  ReadFailure failure_of(const Runs& batch, const Run& run);
  GuardedMap* map_of(std::size_t file) noexcept;

  std::vector<RowFile> files_;
  Open only_;  // a file that came open
  std::atomic<std::int64_t> mapping_budget_;
  std::atomic<std::int64_t> hits_{0};
  std::atomic<std::int64_t> mapped_bytes_{0};
  std::unique_ptr<std::atomic<GuardedMap*>[]> maps_;
  std::vector<std::weak_ptr<const Descriptor>> open_;  // guarded by one mutex for all RowFiles
};

}  // namespace pinfeed::runtime
