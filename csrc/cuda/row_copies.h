// Padding and unpadding as copies of rows, driven by the output: every byte of the output is
// written once, by one thread.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/memory.h"
#include "cuda/portable.h"
#include "kernels/jagged.h"

namespace pinfeed::cuda {

using kernels::JaggedShape;

// The source address of a byte of the output, and the number of bytes from it on that come from
// consecutive addresses, or are fill.
struct Span {
  const std::uint8_t* from;  // null: fill
  std::int64_t bytes;
};

// The rows of one sample, in the padded batch and among the jagged values.
struct SampleRows {
  std::int64_t begin;  // in the values
  std::int64_t rows;   // rows in the padded sample
  std::int64_t first;  // the first of them in the padded sample
};

// JaggedShape, as the threads use it.
struct JaggedRows {
  const std::int64_t* offsets;
  std::int64_t count;
  std::int64_t total;
  std::int64_t length;
  std::int64_t max_rows;
  bool left;

  explicit JaggedRows(const JaggedShape& shape)
      : offsets(shape.offsets),
        count(shape.count),
        total(shape.total),
        length(shape.length),
        max_rows(shape.max_rows),
        left(shape.left) {}

  PINFEED_BOTH std::int64_t offset(std::int64_t i) const {
    return clamp(load_int64(offsets + i), 0, total);
  }

  PINFEED_BOTH SampleRows sample(std::int64_t i) const {
    const std::int64_t begin = offset(i), end = larger(begin, offset(i + 1));
    const std::int64_t rows = smaller(end - begin, max_rows);
    if (left) return {end - rows, rows, length - rows};
    return {begin, rows, 0};
  }
};

// The rows of the padded batch, read from the jagged values.
struct PaddedRows {
  JaggedRows rows;
  const std::uint8_t* values;
  std::int64_t row_bytes;
  Divider by_row_bytes;
  Divider by_length;

  PINFEED_BOTH const std::uint8_t* begin() const { return values; }
  PINFEED_BOTH const std::uint8_t* end() const { return values + rows.total * row_bytes; }

  PINFEED_BOTH Span find(std::int64_t byte) const {
    const Division row = by_row_bytes.divide(byte);
    const Division at = by_length.divide(row.quotient);
    const SampleRows own = rows.sample(at.quotient);
    const std::int64_t step = at.remainder, index = step - own.first;
    const bool is_data = index >= 0 && index < own.rows;
    // The remaining rows of the same range, including this one.
    const std::int64_t ahead =
        is_data ? own.rows - index : (index < 0 ? -index : rows.length - step);
    const std::uint8_t* const from =
        is_data ? values + (own.begin + index) * row_bytes + row.remainder : nullptr;
    return {from, ahead * row_bytes - row.remainder};
  }
};

// The jagged values, read from the padded batch.
struct UnpaddedRows {
  JaggedRows rows;
  const std::uint8_t* padded;
  std::int64_t row_bytes;
  Divider by_row_bytes;

  PINFEED_BOTH const std::uint8_t* begin() const { return padded; }
  PINFEED_BOTH const std::uint8_t* end() const {
    return padded + rows.count * rows.length * row_bytes;
  }

  PINFEED_BOTH Span find(std::int64_t byte) const {
    const Division row = by_row_bytes.divide(byte);
    // The last sample that begins at or before the row.
    // samples [0, low) begin before it, [high, count) don't
    std::int64_t low = 0, high = rows.count;
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
    if (index < 0 || index >= own.rows) return {nullptr, row_bytes - row.remainder};
    const std::int64_t row_number = sample * rows.length + own.first + index;
    return {padded + row_number * row_bytes + row.remainder,
            (own.rows - index) * row_bytes - row.remainder};
  }
};

// The fill item, repeated from a multiple of 16 bytes of the output on.
struct FillPattern {
  Vector vector = {};

  FillPattern() = default;
  explicit FillPattern(const kernels::Item& item) {
    for (int byte = 0; byte < kVectorBytes; ++byte) {
      const std::uint32_t value = item.bytes[static_cast<std::size_t>(byte % item.size)];
      vector.at[byte / 4] |= value << (8 * (byte % 4));
    }
  }

  PINFEED_BOTH std::uint32_t byte(std::int64_t position) const {
    const int index = static_cast<int>(position & (kVectorBytes - 1));
    return (vector.at[index / 4] >> (8 * (index % 4))) & 0xffu;
  }
};

// Writes the whole output, a vector at a time. Rows::find returns the source of its bytes. A vector
// of several rows that are not adjacent is written piece by piece.
template <class Rows>
struct RowCopies {
  static constexpr int kVectors = 4;  // per thread; all their loads are issued at once

  Rows rows;
  std::uint8_t* out;
  std::int64_t bytes;
  // A power of two up to 16 that divides the size of a row and the address of the input: the size
  // of the pieces that are copied.
  std::int32_t unit;
  FillPattern fill;

  // Blocks of kThreads threads, each of which calls write() with its number.
  std::int64_t blocks(int threads) const {
    return blocks_of(bytes, std::int64_t{threads} * kVectors * kVectorBytes);
  }

  PINFEED_BOTH void write(std::int64_t block, int thread, int threads) const {
    const auto begin_of = [&](int i) {
      return ((block * kVectors + i) * threads + thread) * kVectorBytes;
    };
    // Initialized, because nvcc spills undefined vectors to local memory.
    Vector loaded[kVectors] = {};
    unsigned whole = 0;  // a bit for each vector that lies in one range
    PINFEED_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t begin = begin_of(i);
      if (begin + kVectorBytes > bytes) continue;
      const Span span = rows.find(begin);
      if (span.bytes < kVectorBytes) continue;
      whole |= 1u << i;
      loaded[i] =
          span.from == nullptr ? fill.vector : load_unaligned(span.from, rows.begin(), rows.end());
    }
    PINFEED_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      if ((whole & (1u << i)) != 0) store_words<4>(out + begin_of(i), loaded[i]);
    }
    PINFEED_NO_UNROLL
    for (int i = 0; i < kVectors && begin_of(i) < bytes; ++i) {
      if ((whole & (1u << i)) != 0) continue;
      write_pieces(begin_of(i), smaller(begin_of(i) + kVectorBytes, bytes));
    }
  }

 private:
  // Bytes [begin, end), of several ranges or of less than a vector.
  PINFEED_BOTH void write_pieces(std::int64_t begin, std::int64_t end) const {
    while (begin < end) {
      const Span span = rows.find(begin);
      const std::int64_t span_end = smaller(end, begin + span.bytes);
      const std::uint8_t* from = span.from;
      for (; begin < span_end; begin += unit) {
        if (from == nullptr) {
          for (int i = 0; i < unit; ++i) {
            out[begin + i] = static_cast<std::uint8_t>(fill.byte(begin + i));
          }
        } else {
          copy_aligned(out + begin, from, unit);
          from += unit;
        }
      }
    }
  }
};

}  // namespace pinfeed::cuda
