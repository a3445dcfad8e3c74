// One sample of a batch whose samples differ in size, and how its items reach contiguous memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/strided_copy.h"

namespace pinfeed::kernels {

struct Sample {
  const std::byte* data;
  const std::int64_t* shape;
  const std::int64_t* strides;  // bytes
  Cast cast;                    // to the batch's type; null: items are copied as they are
  bool contiguous;              // as a whole
  // How to bring together a block that is not contiguous: planned for its shape and strides. Null:
  // it is contiguous, or a single item.
  const StridedCopy* plan = nullptr;
  // Becomes true, by an atomic store, when an integer of the sample does not fit in the batch's
  // type. Null: nobody asks.
  bool* misfit = nullptr;
};

// Writes a block of `items` items of the sample, the first at `from`, as `item_size` bytes each.
void write_block(const Sample& sample, const PermuteRuns& runs, const std::byte* from,
                 std::size_t items, std::size_t item_size, std::byte* out, bool streaming);

}  // namespace pinfeed::kernels
