// A strided array, made contiguous: the one kernel behind every permutation of axes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/permute_runs.h"

namespace pinfeed::kernels {

struct Axis {
  std::size_t size;
  std::ptrdiff_t stride;  // bytes; negative and zero too
};

// The loop order over an array with any strides: axes merged, and what is left cut into rows, which
// follow each other when the items are written in order.
class StridedRows {
 public:
  StridedRows(std::size_t axes, const std::int64_t* shape, const std::int64_t* strides,
              std::size_t item_size);

  std::size_t count() const { return count_; }
  std::size_t items() const { return slow_.size * fast_.size; }  // of one row
  std::ptrdiff_t offset(std::size_t row) const;                  // of a row's first item, in bytes

  // A row is slow().size x fast().size items; fast() is the last axis. If its items stand next to
  // each other, slow().size is 1.
  Axis slow() const { return slow_; }
  Axis fast() const { return fast_; }

 private:
  std::vector<Axis> outer_;  // all but the axes of a row
  std::size_t count_ = 1;
  Axis slow_{1, 0};
  Axis fast_{1, 0};
};

// Copies slow.size x fast.size items to contiguous memory. item_size: 1, 2, 4, 8 or 16 bytes.
void copy_items(const PermuteRuns& runs, const std::byte* from, Axis slow, Axis fast,
                std::size_t item_size, std::byte* to, bool streaming);

// The copy of a source with any strides into a contiguous output in the same order of axes.
// Planning picks the loop order once, so that ranges of one copy can run on several threads.
class StridedCopy {
 public:
  // item_size: 1, 2, 4, 8 or 16 bytes.
  StridedCopy(const void* source, std::size_t axes, const std::int64_t* shape,
              const std::int64_t* strides, std::size_t item_size, void* out);

  // Work is counted in rows of `row_bytes()` output bytes; disjoint ranges may run at once.
  std::size_t rows() const { return rows_.count(); }
  std::size_t row_bytes() const { return rows_.items() * item_size_; }
  void run(const PermuteRuns& runs, std::size_t row_begin, std::size_t row_end,
           bool streaming) const;

 private:
  StridedRows rows_;
  const std::byte* source_;
  std::byte* out_;
  std::size_t item_size_;
};

}  // namespace pinfeed::kernels
