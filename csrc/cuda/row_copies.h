// Copies rows from where each lies to where it belongs: what padding and its inverse are, seen from
// the output. Every byte of the output is written by one thread, once.
#pragma once

#include <cstdint>

#include "cuda/jagged_rows.h"
#include "cuda/memory.h"
#include "cuda/portable.h"

namespace pinfeed::cuda {

// The fill's item, again and again: as it stands after a multiple of 16 bytes of the output.
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

  // The vector that begins `bytes` bytes, 0 to 15, before the output.
  PINFEED_BOTH Vector before(unsigned bytes) const {
    return middle(vector, vector, (kVectorBytes - bytes) & (kVectorBytes - 1));
  }
};

// Writes the whole output, a vector at a time. Rows::find says where its bytes come from. A vector
// of several rows that lie apart is written piece by piece.
template <class Rows>
struct RowCopies {
  static constexpr int kVectors = 4;  // of a thread, whose loads are on their way at once

  Rows rows;
  std::uint8_t* out;
  std::int64_t bytes;
  // A power of two up to 16 that divides the size of a row and the addresses of input and output:
  // pieces of that size are moved as a whole.
  std::int32_t unit;
  FillPattern fill;

  // How far beyond a multiple of 16 bytes the output begins.
  PINFEED_BOTH int skip() const { return static_cast<int>(misalignment(out, kVectorBytes)); }

  // Blocks of so many threads, each of which calls write() with its number.
  std::int64_t blocks(int threads) const {
    return bytes == 0 ? 0
                      : blocks_of(bytes + skip(), std::int64_t{threads} * kVectors * kVectorBytes);
  }

  PINFEED_BOTH void write(std::int64_t block, int thread, int threads) const {
    const auto begin_of = [&](int i) {
      return ((block * kVectors + i) * threads + thread) * kVectorBytes - skip();
    };
    Vector loaded[kVectors];
    unsigned whole = 0;  // a bit for each vector that is one stretch
    PINFEED_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t begin = begin_of(i);
      if (begin < 0 || begin + kVectorBytes > bytes) continue;
      const Stretch stretch = rows.find(begin);
      if (stretch.bytes < kVectorBytes) continue;
      whole |= 1u << i;
      loaded[i] = stretch.from == nullptr ? fill.before(static_cast<unsigned>(skip()))
                                          : load_unaligned(stretch.from, rows.begin(), rows.end());
    }
    PINFEED_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      if ((whole & (1u << i)) != 0) store_words<4>(out + begin_of(i), loaded[i]);
    }
    PINFEED_NO_UNROLL
    for (int i = 0; i < kVectors && begin_of(i) < bytes; ++i) {
      if ((whole & (1u << i)) != 0) continue;
      write_pieces(larger(begin_of(i), 0), smaller(begin_of(i) + kVectorBytes, bytes));
    }
  }

 private:
  // Bytes [begin, end), of several stretches or of less than a vector.
  PINFEED_BOTH void write_pieces(std::int64_t begin, std::int64_t end) const {
    while (begin < end) {
      const Stretch stretch = rows.find(begin);
      const std::int64_t stretch_end = smaller(end, begin + stretch.bytes);
      const std::uint8_t* from = stretch.from;
      for (; begin < stretch_end; begin += unit) {
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
