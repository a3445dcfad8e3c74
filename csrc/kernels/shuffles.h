// Byte shuffles of a block of 16 pixels, as tables for pshufb: lane i of shuffle[to][from] says
// which byte of input vector `from` lands in byte i of output vector `to`; -1 gives zero, so that
// the parts of one output can be joined with or.
#pragma once

#include <array>
#include <cstdint>

namespace pinfeed::kernels {

using Shuffle = std::array<std::int8_t, 16>;

template <int Vectors>
struct alignas(16) Shuffles {
  Shuffle table[Vectors][Vectors];  // [to][from]

  constexpr bool used(int to, int from) const {
    for (const std::int8_t lane : table[to][from]) {
      if (lane >= 0) return true;
    }
    return false;
  }
};

// source(byte of the output) = byte of the input, both counted through their vectors.
template <int Vectors, class Source>
constexpr Shuffles<Vectors> make_shuffles(Source source) {
  Shuffles<Vectors> shuffles{};
  for (int to = 0; to < Vectors; ++to) {
    for (int from = 0; from < Vectors; ++from) {
      for (int lane = 0; lane < 16; ++lane) {
        const int byte = source(to * 16 + lane) - from * 16;
        shuffles.table[to][from][lane] =
            static_cast<std::int8_t>(byte >= 0 && byte < 16 ? byte : -1);
      }
    }
  }
  return shuffles;
}

// Pixels of Step items of Item bytes → planes, one vector each; of the last pixel first if
// Backwards.
template <int Item, int Step, bool Backwards>
inline constexpr auto kDeinterleave = make_shuffles<Step>([](int byte) {
  const int plane = byte / 16, pixel = byte % 16 / Item;
  return ((Backwards ? 16 / Item - 1 - pixel : pixel) * Step + plane) * Item + byte % Item;
});

// Packs the first [false] or the last [true] `words` of four words in each lane: at the beginning
// in order, or at the end in reverse order.
template <int Lanes>
alignas(64) inline constexpr auto kJoinedWords = [] {
  std::array<std::array<std::array<std::int32_t, 4 * Lanes>, 5>, 2> orders{};
  for (int words = 1; words <= 4; ++words) {
    for (int i = 0; i < Lanes * words; ++i) {
      const int lane = i / words * 4, word = i % words, last = 4 * Lanes - 1;
      orders[false][words][i] = lane + word;
      orders[true][words][last - i] = lane + 3 - word;
    }
  }
  return orders;
}();

// Bytes in reverse order.
alignas(16) inline constexpr Shuffle kReverse = {15, 14, 13, 12, 11, 10, 9, 8,
                                                 7,  6,  5,  4,  3,  2,  1, 0};

}  // namespace pinfeed::kernels
