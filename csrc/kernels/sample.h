// One sample of a batch whose samples differ in size, and how to make its items contiguous.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/copy.h"
#include "kernels/strided_copy.h"

namespace pinfeed::kernels {

struct Sample {
  const std::byte* data;
  const std::int64_t* shape;
  const std::int64_t* strides;  // bytes
  Cast cast;                    // to the batch's type; null: items are copied unchanged
  bool contiguous;              // the whole sample
  // The copy of a block that is not contiguous, planned for its shape and strides. Null: the block
  // is contiguous, or a single item.
  const StridedCopy* plan = nullptr;
  // Set to true, by an atomic store, when an integer of the sample does not fit the batch's type.
  // Null: not checked.
  bool* misfit = nullptr;
};

// Writes a block of `items` items of the sample, the first at `from`, as `item_size` bytes each.
inline void write_block(const Sample& sample, const PermuteRuns& runs, const std::byte* from,
                        std::size_t items, std::size_t item_size, std::byte* out, bool streaming) {
  if (items == 0) return;
  bool fits = true;
  if (sample.plan != nullptr) {
    fits = sample.plan->run(runs, from, out, streaming);
  } else if (sample.cast) {
    fits = sample.cast(from, items, out);
  } else {
    copy_bytes(out, from, items * item_size, streaming);
  }
  if (!fits && sample.misfit != nullptr) __atomic_store_n(sample.misfit, true, __ATOMIC_RELAXED);
}

}  // namespace pinfeed::kernels
