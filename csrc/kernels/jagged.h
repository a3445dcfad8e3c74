// Samples of different lengths, from one right after the other (jagged) to a box for each (padded),
// and back: what the ops of torch.ops.pinfeed take, on the CPU and on CUDA devices.
//
// A row is what one step of a sample holds: `row_bytes` bytes, any number. Sample i of a jagged
// batch is rows [offsets[i], offsets[i + 1]) of its values. Pointers are to the device's memory.
// Any alignment will do.
#pragma once

#include <cstdint>

#include "kernels/item.h"

namespace pinfeed::kernels {

// What both directions have in common. No value of an offset may read or write beyond the arrays.
struct JaggedShape {
  const std::int64_t* offsets = nullptr;  // count + 1
  std::int64_t count = 0;                 // samples
  std::int64_t total = 0;                 // rows of the jagged values
  std::int64_t length = 0;                // rows of each box of the padded batch
  // Rows of a sample that go into its box, at most `length`: longer samples are cut, on the side
  // where padding goes.
  std::int64_t most = 0;
  std::int64_t row_bytes = 0;
  bool left = false;  // data stands at the end of its box, else at its beginning
  Item fill;          // rows hold whole ones
};

struct PadJagged {
  JaggedShape shape;
  const void* values = nullptr;  // (total, row)
  void* out = nullptr;           // (count, length, row); overlaps no input
};

// The inverse. Every row of `out` is written: those that were cut, and those of no sample, become
// fill.
struct UnpadToJagged {
  JaggedShape shape;
  const void* padded = nullptr;  // (count, length, row)
  void* out = nullptr;           // (total, row); overlaps no input
};

}  // namespace pinfeed::kernels
