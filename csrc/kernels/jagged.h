// Samples of different lengths, from concatenated (jagged) to padded and back: the arguments of the
// ops in torch.ops.pinfeed, on the CPU and on CUDA devices.
//
// A row is one step of a sample, of any number of bytes. Sample i of a jagged batch is rows
// [offsets[i], offsets[i + 1]) of its values. Pointers are to the device's memory. Outputs are
// aligned to 16 bytes, as torch allocates them; inputs may have any alignment.
#pragma once

#include <cstdint>

#include "kernels/item.h"

namespace pinfeed::kernels {

// The common arguments of both directions. No offset may make a read or write leave the arrays.
struct JaggedShape {
  const std::int64_t* offsets = nullptr;  // count + 1
  std::int64_t count = 0;                 // samples
  std::int64_t total = 0;                 // rows of the jagged values
  std::int64_t length = 0;                // rows per sample of the padded batch
  // The rows to copy of a sample, at most `length`: longer samples are truncated on the padded
  // side.
  std::int64_t max_rows = 0;
  std::int64_t row_bytes = 0;
  bool left = false;  // padding comes before the data, else after it
  Item fill;          // one item; a row holds whole items
};

struct PadJagged {
  JaggedShape shape;
  const void* values = nullptr;  // (total, row)
  void* out = nullptr;           // (count, length, row); overlaps no input
};

// The inverse. Writes every row of `out`: rows that were truncated or that belong to no sample are
// filled.
struct UnpadToJagged {
  JaggedShape shape;
  const void* padded = nullptr;  // (count, length, row)
  void* out = nullptr;           // (total, row); overlaps no input
};

}  // namespace pinfeed::kernels
