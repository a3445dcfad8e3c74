// A strided array, made contiguous: the one kernel behind every permutation of axes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/permute_runs.h"

namespace pinfeed::kernels {

// The copy of a source with any strides (bytes; negative and zero too) into a contiguous output in
// the same order of axes. Planning merges axes and picks the loop order once, so that ranges of one
// copy can run on several threads.
class StridedCopy {
 public:
  // item_size: 1, 2, 4, 8 or 16 bytes.
  StridedCopy(const void* source, std::size_t axes, const std::int64_t* shape,
              const std::int64_t* strides, std::size_t item_size, void* out);

  // Work is counted in rows of `row_bytes()` output bytes; disjoint ranges may run at once.
  std::size_t rows() const { return rows_; }
  std::size_t row_bytes() const;
  void run(const PermuteRuns& runs, std::size_t row_begin, std::size_t row_end,
           bool streaming) const;

 private:
  struct Axis {
    std::size_t size;
    std::ptrdiff_t stride;
  };
  const std::byte* row_source(std::size_t row) const;

  const std::byte* source_;
  std::byte* out_;
  std::size_t item_size_;
  std::vector<Axis> outer_;  // all but the axes of a row
  std::size_t rows_ = 1;
  Axis slow_{1, 0};  // a row is slow_.size x fast_.size items; fast_ is the last axis
  Axis fast_{1, 0};
};

}  // namespace pinfeed::kernels
