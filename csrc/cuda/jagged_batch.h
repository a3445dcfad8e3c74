// Samples of different lengths on a device: from one right after the other (jagged) to a box for
// each (padded), and back.
//
// A row is what one step of a sample holds: `row_bytes` bytes, any number. Sample i of a jagged
// batch is rows [offsets[i], offsets[i + 1]) of its values.
//
// Needs no CUDA header; the functions are in jagged.h.
#pragma once

#include <array>
#include <cstdint>

namespace pinfeed::cuda {

// An item as it stands in memory, of which padding is made. Rows hold whole items.
struct FillItem {
  std::array<std::uint8_t, 16> bytes{};
  std::int64_t size = 1;  // bytes: 1, 2, 4, 8 or 16
};

// What both directions have in common. Offsets lie on the device, where nobody has checked them:
// those outside [0, total] are taken for the nearest inside, and a sample that would end before it
// begins is empty. So no value of an offset reads or writes beyond the arrays.
struct JaggedShape {
  const std::int64_t* offsets = nullptr;  // count + 1
  std::int64_t count = 0;                 // samples
  std::int64_t total = 0;                 // rows of the jagged values
  std::int64_t length = 0;                // rows of each box of the padded batch
  // Rows of a sample that go into its box, at most `length`: longer samples are cut, on the side
  // where padding goes.
  std::int64_t most = 0;
  std::int64_t row_bytes = 0;
  bool left = false;        // data stands at the end of its box, else at its beginning
  bool time_major = false;  // the padded batch is (length, count, row), else (count, length, row)
  FillItem fill;
};

// Pointers are to the device's memory. Any alignment will do.
struct PadJagged {
  JaggedShape shape;
  const void* values = nullptr;  // (total, row)
  void* out = nullptr;           // (count, length, row) or (length, count, row); overlaps no input
  // (count, length) or (length, count): 1 where data is, 0 where fill is. Null: not wanted.
  std::uint8_t* mask = nullptr;
  // (count): rows of each sample in its box, int64. Null: not wanted. Aligned to 8 bytes.
  std::int64_t* lengths = nullptr;
};

struct UnpadToJagged {
  JaggedShape shape;
  const void* padded = nullptr;  // (count, length, row) or (length, count, row)
  void* out = nullptr;           // (total, row); overlaps no input
};

}  // namespace pinfeed::cuda
