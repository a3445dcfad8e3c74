// The reads of a batch as the disk likes them: in the order of the files, neighbours together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/open_files.h"

namespace pinfeed::runtime {

// One read from a file, to the places of several rows.
struct RowRun {
  std::size_t begin, end;  // of the parts
  std::size_t file;
  std::int64_t offset;
  std::size_t bytes;
  std::size_t done = 0;
  OpenFiles::Open file_open{};  // set before an attempt
  int error = 0;
  bool ended = false;   // the file did, before the run
  bool unsure = false;  // whether it was at hand, for the file system doesn't tell
  bool waited = false;  // for what was unsure
};

class RowRuns {
 public:
  // The reads must outlive this.
  explicit RowRuns(std::span<const RowRead> reads);

  std::vector<RowRun>& runs() & { return runs_; }  // not of a temporary

  // One attempt; whether the run is over, read or failed. Without `wait` only what is in memory is
  // read, as far as the system can tell.
  bool attempt(RowRun& run, bool wait) const noexcept;

  // The read that a run stopped in.
  const RowRead& read_of(const RowRun& run) const;

 private:
  struct Part {
    std::byte* to;
    std::size_t bytes;
    std::size_t read;
  };

  void add(std::size_t read, std::size_t skipped, std::size_t bytes);

  std::span<const RowRead> reads_;
  std::vector<Part> parts_;
  std::vector<RowRun> runs_;
};

}  // namespace pinfeed::runtime
