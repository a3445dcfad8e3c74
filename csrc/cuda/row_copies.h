// Copies rows from where each lies to where it belongs: what padding and its inverse are, seen from
// the output. Every byte of the output is written by one thread, once.
#pragma once

#include <cstdint>

#include "cuda/jagged_batch.h"
#include "cuda/jagged_rows.h"
#include "cuda/memory.h"
#include "cuda/portable.h"

namespace pinfeed::cuda {

// The fill's item, again and again: as it stands after a multiple of 16 bytes of the output.
struct FillPattern {
  std::uint32_t at[4] = {};

  FillPattern() = default;
  explicit FillPattern(const FillItem& item) {
    for (int byte = 0; byte < kVectorBytes; ++byte) {
      const std::uint32_t value = item.bytes[static_cast<std::size_t>(byte % item.size)];
      at[byte / 4] |= value << (8 * (byte % 4));
    }
  }

  PINFEED_BOTH std::uint32_t byte(std::int64_t position) const {
    const int index = static_cast<int>(position & (kVectorBytes - 1));
    return (at[index / 4] >> (8 * (index % 4))) & 0xffu;
  }

  // The vector that begins `bytes` bytes, 0 to 15, before the output.
  PINFEED_BOTH Vector before(unsigned bytes) const {
    const Vector pattern{{at[0], at[1], at[2], at[3]}};
    return middle(pattern, pattern, (kVectorBytes - bytes) & (kVectorBytes - 1));
  }
};

// Writes the whole output, kWidth bytes at a time. Rows::find says where they come from.
template <class Rows, int kWidth>
struct RowCopies {
  static constexpr int kVectors = 4;  // of a thread, whose loads are on their way at once
  // A narrow vector is a unit: it divides a row and all addresses, so it is always of one stretch.
  static constexpr bool kIsUnit = kWidth < kVectorBytes;

  Rows rows;
  std::uint8_t* out;
  std::int64_t bytes;
  // A power of two up to 16 that divides the size of a row and the addresses of input and output:
  // pieces of that size are moved as a whole. A width below 16 is this unit.
  std::int32_t unit;
  FillPattern fill;

  // How far beyond a multiple of kWidth the output begins.
  PINFEED_BOTH int skip() const { return static_cast<int>(misalignment(out, kWidth)); }
  std::int64_t vectors() const { return bytes == 0 ? 0 : blocks_of(bytes + skip(), kWidth); }

  // Writes kVectors vectors: `first`, `first + step` and so on.
  PINFEED_BOTH void write(std::int64_t first, int step) const {
    Vector loaded[kVectors];
    unsigned whole = 0;  // a bit for each vector that is one stretch
    PINFEED_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t begin = (first + i * step) * kWidth - skip();
      if (begin < 0 || begin + kWidth > bytes) continue;
      const Stretch stretch = rows.find(begin);
      if (kIsUnit || stretch.bytes >= kWidth) {
        whole |= 1u << i;
        loaded[i] = stretch.from == nullptr ? fill_vector(begin) : load(stretch.from);
      }
    }
    PINFEED_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t begin = (first + i * step) * kWidth - skip();
      if ((whole & (1u << i)) != 0) store(out + begin, loaded[i]);
    }
    if constexpr (!kIsUnit) {
      PINFEED_NO_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        const std::int64_t begin = (first + i * step) * kWidth - skip();
        if (begin >= bytes) break;
        if ((whole & (1u << i)) != 0) continue;
        write_pieces(larger(begin, 0), smaller(begin + kWidth, bytes));
      }
    }
  }

 private:
  PINFEED_BOTH Vector fill_vector(std::int64_t begin) const {
    if constexpr (kWidth == kVectorBytes) return fill.before(static_cast<unsigned>(skip()));
    Vector vector{};
    PINFEED_UNROLL
    for (int i = 0; i < kWidth; ++i) vector.at[i / 4] |= fill.byte(begin + i) << (8 * (i % 4));
    return vector;
  }

  // The first kWidth bytes of the vector matter.
  PINFEED_BOTH Vector load(const std::uint8_t* from) const {
    Vector vector{};
    if constexpr (kWidth == kVectorBytes) {
      vector = load_unaligned(from, rows.begin(), rows.end());
    } else if constexpr (kWidth >= 4) {
      const Words<kWidth / 4> words = load_words<kWidth / 4>(from);
      PINFEED_UNROLL
      for (int i = 0; i < kWidth / 4; ++i) vector.at[i] = words.at[i];
    } else {
      vector.at[0] = load_small<kWidth>(from);
    }
    return vector;
  }

  PINFEED_BOTH static void store(std::uint8_t* to, const Vector& vector) {
    if constexpr (kWidth >= 4) {
      Words<kWidth / 4> words;
      PINFEED_UNROLL
      for (int i = 0; i < kWidth / 4; ++i) words.at[i] = vector.at[i];
      store_words<kWidth / 4>(to, words);
    } else {
      store_small<kWidth>(to, vector.at[0]);
    }
  }

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
