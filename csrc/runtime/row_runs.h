// The reads of a batch in disk order: sorted by file and offset, adjacent rows merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/open_files.h"

namespace pinfeed::runtime {

// One read from a file into several rows.
struct RowRun {
  std::size_t begin, end;  // of the parts
  std::size_t file;
  std::int64_t offset;
  std::size_t bytes;
  std::size_t done = 0;
  OpenFiles::Open file_open{};  // set before an attempt
  int error = 0;
  bool ended = false;   // the file ended before the run
  bool unsure = false;  // the file system doesn't tell whether it was cached
  bool waited = false;  // for a run that was unsure
};

class RowRuns {
 public:
  // The reads must outlive this.
  explicit RowRuns(std::span<const RowRead> reads);

  std::vector<RowRun>& runs() & { return runs_; }  // not of a temporary

  // Makes one attempt; returns whether the run is finished, read or failed. Without `wait`, reads
  // only cached bytes, as far as the system can tell.
  bool attempt(RowRun& run, bool wait) const noexcept;

  // The read at which a run stopped.
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
