// Samples of different sizes, each written into one corner of a box; the rest of the box is filled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/fill.h"
#include "kernels/sample.h"

namespace pinfeed::kernels {

// A batch of `count` samples of `axes` axes (at least one). No axis of a sample is longer than the
// box's. The output is contiguous and overlaps no sample.
struct PadBatch {
  const Sample* samples;
  std::size_t count;
  std::size_t axes;
  const std::int64_t* box;    // items along each axis
  const std::int64_t* inner;  // items of the box in one step along each axis
  bool left;                  // data stands at the end of each axis, else at its beginning
  const Fill* fill;           // its item size is the output's
  std::byte* out;
  bool streaming;  // write around the cache: the core won't read the output again
};

// The axis from which on a sample is one block of the output: it fills the box along all later
// axes. Only from `first` on; `axes` means that each item stands alone.
std::size_t block_axis(const std::int64_t* shape, const std::int64_t* box, std::size_t axes,
                       std::size_t first);

// Writes boxes [begin, end) of an output of shape (count, *box). The samples' plans are for their
// axes from block_axis(..., 0) on. Disjoint ranges may run at the same time.
void pad_samples(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin,
                 std::size_t end);

// Writes steps [begin, end) along axis 0 of an output of shape (box[0], count, *box[1:]). The
// samples' plans are for their axes from block_axis(..., 1) on, if there are any.
void pad_steps(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin, std::size_t end);

// The mask of pad_samples and pad_steps: bytes of 1 where they write data, 0 where they fill.
// The samples' data is not read, but their strides are used; `fill` is a byte of 0.
void mask_samples(const PadBatch& batch, std::size_t begin, std::size_t end);
void mask_steps(const PadBatch& batch, std::size_t begin, std::size_t end);

}  // namespace pinfeed::kernels
