// Samples of different lengths, one right after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sample.h"

namespace pinfeed::kernels {

// Writes samples[i] for i in [begin, end), whole, from row starts[i] of `out` on; sample i has
// starts[i + 1] - starts[i] rows of `row_items` items of `item_size` bytes. Disjoint ranges may run
// at the same time.
void join_samples(const Sample* samples, const std::int64_t* starts, std::size_t row_items,
                  std::size_t item_size, const PermuteRuns& runs, std::byte* out, bool streaming,
                  std::size_t begin, std::size_t end);

}  // namespace pinfeed::kernels
