// Samples of different sizes, each written into one corner of a box; the rest of the box is filled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/fill.h"
#include "kernels/sample.h"

namespace pinfeed::kernels {

// A second output: an int64 batch with one value in another's place.
struct Replacement {
  std::int64_t value;
  std::int64_t by;
  std::byte* out;
};

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
  const Replacement* replaced = nullptr;  // not for streaming

  std::size_t box_bytes() const {
    return static_cast<std::size_t>(box[0] * inner[0]) * fill->item_size();
  }
};

// The axis from which on a sample is one block of the output: it fills the box along all later
// axes.
std::size_t block_axis(const std::int64_t* shape, const std::int64_t* box, std::size_t axes);

// Writes boxes [begin, end). The samples' plans are for their axes from block_axis() on. Disjoint
// ranges may run at the same time.
void pad_samples(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin,
                 std::size_t end);

}  // namespace pinfeed::kernels
