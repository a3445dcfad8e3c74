// Makes strided arrays contiguous: the kernel behind every permutation of axes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cast.h"
#include "kernels/permute_runs.h"

namespace pinfeed::kernels {

struct Axis {
  std::size_t size;
  std::ptrdiff_t stride;  // bytes; negative and zero too
};

// Copies slow.size x fast.size items to contiguous memory. item_size: 1, 2, 4, 8 or 16 bytes.
void copy_items(const PermuteRuns& runs, const std::byte* from, Axis slow, Axis fast,
                std::size_t item_size, std::byte* to, bool streaming);

// The copy of an array with any strides into contiguous memory with the same axes, cast or
// unchanged. A plan fits every array of the same shape and strides, on any thread, and allocates
// nothing.
class StridedCopy {
 public:
  // `cast` turns items of `item_size` bytes (1, 2, 4, 8 or 16) into items of `out_size`. Without
  // it, items are copied unchanged.
  StridedCopy(std::size_t axes, const std::int64_t* shape, const std::int64_t* strides,
              std::size_t item_size, Cast cast, std::size_t out_size);
  StridedCopy(std::size_t axes, const std::int64_t* shape, const std::int64_t* strides,
              std::size_t item_size)
      : StridedCopy(axes, shape, strides, item_size, {}, item_size) {}

  // The unit of work is a row of `row_bytes()` output bytes.
  std::size_t rows() const { return rows_; }
  std::size_t row_bytes() const { return row_items() * out_size_; }

  // Writes rows [begin, end) of the output at `out`. `streaming` as for copy_bytes; the stores are
  // done when this returns. Returns the result of the Cast. Disjoint ranges may run at the same
  // time.
  bool run(const PermuteRuns& runs, const void* source, void* out, std::size_t begin,
           std::size_t end, bool streaming) const;
  bool run(const PermuteRuns& runs, const void* source, void* out, bool streaming) const {
    return run(runs, source, out, 0, rows(), streaming);
  }

 private:
  std::size_t row_items() const { return slow_.size * fast_.size; }
  std::ptrdiff_t offset(std::size_t row) const;  // of a row's first item, in bytes
  bool cast_run(const std::byte* from, std::size_t count, std::byte* to, bool streaming) const;
  bool cast_row(const PermuteRuns& runs, const std::byte* from, std::byte* to,
                bool streaming) const;

  Cast cast_;
  std::size_t item_size_;
  std::size_t out_size_;
  // Axes that are contiguous with each other are merged. The last two of the merged axes form a row
  // of slow_.size x fast_.size items; if the last axis is contiguous, it alone is the row.
  std::vector<Axis> outer_;
  std::size_t rows_ = 1;
  Axis slow_{1, 0};
  Axis fast_{1, 0};
};

}  // namespace pinfeed::kernels
