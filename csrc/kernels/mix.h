// Images of a batch that is there, each mixed with the one before it: MixUp.
#pragma once

#include <cstddef>

namespace pinfeed::kernels {

// `count` images of `values` each, one after the other. What comes before the first is the last.
struct MixedBatch {
  float* images;
  std::size_t count;
  std::size_t values;
  float share;   // of an image itself
  float before;  // of the one before it
};

// Mixes values [begin, end) of all images in place: round(round(x * share) + round(y * before)).
// They should stay in a cache until the next image needs them. Disjoint ranges may run at the same
// time. Throws std::bad_alloc.
void mix(const MixedBatch& batch, std::size_t begin, std::size_t end);

}  // namespace pinfeed::kernels
