// The kernels that pad a jagged batch and unpad it, and their arguments.
#pragma once

#include <cstdint>

#include "cuda/row_copies.h"

namespace pinfeed::cuda {

// The copy of rows from a jagged batch to a padded one, or back.
template <class Rows>
struct CopyWork {
  static constexpr int kThreads = 256;

  RowCopies<Rows> copies;

  std::int64_t blocks() const { return copies.blocks(kThreads); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    copies.write(block, thread, kThreads);
  }
};
using PadWork = CopyWork<PaddedRows>;
using UnpadWork = CopyWork<UnpaddedRows>;

// The largest power of two up to 16 that divides a row and the input's address.
inline std::int32_t common_unit(std::int64_t row_bytes, const void* from) {
  std::int32_t unit = kVectorBytes;
  while (row_bytes % unit != 0 || misalignment(from, static_cast<unsigned>(unit)) != 0) unit /= 2;
  return unit;
}

inline PadWork work_of(const kernels::PadJagged& pad) {
  const JaggedShape& shape = pad.shape;
  return {.copies = {.rows = {JaggedRows(shape), static_cast<const std::uint8_t*>(pad.values),
                              shape.row_bytes, Divider(shape.row_bytes), Divider(shape.length)},
                     .out = static_cast<std::uint8_t*>(pad.out),
                     .bytes = shape.count * shape.length * shape.row_bytes,
                     .unit = common_unit(shape.row_bytes, pad.values),
                     .fill = FillPattern(shape.fill)}};
}

inline UnpadWork work_of(const kernels::UnpadToJagged& unpad) {
  const JaggedShape& shape = unpad.shape;
  return {.copies = {.rows = {JaggedRows(shape), static_cast<const std::uint8_t*>(unpad.padded),
                              shape.row_bytes, Divider(shape.row_bytes)},
                     .out = static_cast<std::uint8_t*>(unpad.out),
                     .bytes = shape.total * shape.row_bytes,
                     .unit = common_unit(shape.row_bytes, unpad.padded),
                     .fill = FillPattern(shape.fill)}};
}

}  // namespace pinfeed::cuda
