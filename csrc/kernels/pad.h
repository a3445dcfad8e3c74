// Pads samples of different sizes: each is written into one corner of a box, and the rest is
// filled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/fill.h"
#include "kernels/sample.h"

namespace pinfeed::kernels {

// A second output: an int64 batch in which one value is replaced by another.
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
  bool left;                  // padding comes before the data, else after it
  const Fill* fill;           // of the output's item size
  std::byte* out;
  bool streaming;                         // bypass the cache: the core won't read the output again
  const Replacement* replaced = nullptr;  // not for streaming

  std::size_t box_bytes() const {
    return static_cast<std::size_t>(box[0] * inner[0]) * fill->item_size();
  }
};

// The first axis from which the sample is one block of the output, because it fills the box along
// all later axes.
std::size_t block_axis(const std::int64_t* shape, const std::int64_t* box, std::size_t axes);

// Writes boxes [begin, end). The samples' plans are for their axes from block_axis() on. Disjoint
// ranges may run at the same time.
void pad_samples(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin,
                 std::size_t end);

}  // namespace pinfeed::kernels
