// Where each byte of a padded batch comes from, and each byte of jagged values.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/memory.h"
#include "cuda/portable.h"
#include "kernels/jagged.h"

namespace pinfeed::cuda {

using kernels::JaggedShape;

// Where a byte of the output comes from, and how many bytes from it on come from the addresses
// after that, or are fill.
struct Stretch {
  const std::uint8_t* from;  // null: fill
  std::int64_t bytes;
};

// The rows of one sample in its box and among the jagged values.
struct SampleRows {
  std::int64_t begin;  // of the values
  std::int64_t kept;   // rows in the box
  std::int64_t place;  // the first of them in the box
};

// JaggedShape as the threads use it.
struct JaggedRows {
  const std::int64_t* offsets;
  std::int64_t count;
  std::int64_t total;
  std::int64_t length;
  std::int64_t most;
  bool left;
  bool time_major;

  explicit JaggedRows(const JaggedShape& shape)
      : offsets(shape.offsets),
        count(shape.count),
        total(shape.total),
        length(shape.length),
        most(shape.most),
        left(shape.left),
        time_major(shape.time_major) {}

  PINFEED_BOTH std::int64_t offset(std::int64_t i) const {
    return clamp(load_int64(offsets + i), 0, total);
  }

  PINFEED_BOTH SampleRows sample(std::int64_t i) const {
    const std::int64_t begin = offset(i), end = larger(begin, offset(i + 1));
    const std::int64_t kept = smaller(end - begin, most);
    if (left) return {end - kept, kept, length - kept};
    return {begin, kept, 0};
  }
};

// The padded batch, as rows of the jagged values.
struct PaddedRows {
  JaggedRows rows;
  const std::uint8_t* values;
  std::int64_t row_bytes;
  Divider by_row_bytes;
  Divider by_inner;  // the length, or the count if time comes first

  PINFEED_BOTH const std::uint8_t* begin() const { return values; }
  PINFEED_BOTH const std::uint8_t* end() const { return values + rows.total * row_bytes; }

  PINFEED_BOTH Stretch find(std::int64_t byte) const {
    const Division row = by_row_bytes.divide(byte);
    const Division at = by_inner.divide(row.quotient);
    const std::int64_t sample = rows.time_major ? at.remainder : at.quotient;
    const std::int64_t step = rows.time_major ? at.quotient : at.remainder;
    const SampleRows own = rows.sample(sample);
    const std::int64_t index = step - own.place;
    const bool is_data = index >= 0 && index < own.kept;
    std::int64_t ahead = 1;  // rows of the same stretch, this one included
    if (!rows.time_major) {
      ahead = is_data ? own.kept - index : (index < 0 ? -index : rows.length - step);
    }
    const std::uint8_t* const from =
        is_data ? values + (own.begin + index) * row_bytes + row.remainder : nullptr;
    return {from, ahead * row_bytes - row.remainder};
  }
};

// The jagged values, as rows of the padded batch.
struct UnpaddedRows {
  JaggedRows rows;
  const std::uint8_t* padded;
  std::int64_t row_bytes;
  Divider by_row_bytes;

  PINFEED_BOTH const std::uint8_t* begin() const { return padded; }
  PINFEED_BOTH const std::uint8_t* end() const {
    return padded + rows.count * rows.length * row_bytes;
  }

  PINFEED_BOTH Stretch find(std::int64_t byte) const {
    const Division row = by_row_bytes.divide(byte);
    // The last sample that begins at the row or before it.
    std::int64_t low = 0, high = rows.count;  // samples [0, low) do, [high, count) don't
    while (low < high) {
      const std::int64_t half = (low + high) / 2;
      if (rows.offset(half) <= row.quotient) {
        low = half + 1;
      } else {
        high = half;
      }
    }
    if (low == 0) return {nullptr, row_bytes - row.remainder};
    const std::int64_t sample = low - 1;
    const SampleRows own = rows.sample(sample);
    const std::int64_t index = row.quotient - own.begin;
    if (index < 0 || index >= own.kept) return {nullptr, row_bytes - row.remainder};
    const std::int64_t step = own.place + index;
    const std::int64_t place =
        rows.time_major ? step * rows.count + sample : sample * rows.length + step;
    const std::int64_t ahead = rows.time_major ? 1 : own.kept - index;
    return {padded + place * row_bytes + row.remainder, ahead * row_bytes - row.remainder};
  }
};

}  // namespace pinfeed::cuda
