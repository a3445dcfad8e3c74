// The primitives of an instruction set for permutations: pixels of 2, 3 or 4 adjacent items to
// planes and back, for items of 1, 2, 4 or 8 bytes. StridedCopy handles all other permutations.
// Also copies that replace one value by another.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace pinfeed::kernels {

// `count` pixels into planes that are `plane_stride` bytes apart.
using Deinterleave = void (*)(const std::byte* pixels, std::size_t count, std::byte* planes,
                              std::ptrdiff_t plane_stride, bool streaming);

// The inverse.
using Interleave = void (*)(const std::byte* planes, std::ptrdiff_t plane_stride, std::size_t count,
                            std::byte* pixels, bool streaming);

// Copies `count` int64, with `by` instead of each `value`.
using ReplaceItems = void (*)(const std::byte* from, std::size_t count, std::int64_t value,
                              std::int64_t by, std::byte* to);

inline constexpr std::size_t kPermuteItems = 4;     // 1, 2, 4, 8 bytes
inline constexpr std::size_t kPermuteChannels = 3;  // 2, 3, 4

struct PermuteRuns {
  Deinterleave deinterleave[kPermuteItems][kPermuteChannels];
  Interleave interleave[kPermuteItems][kPermuteChannels];
  ReplaceItems replace;

  // Null without a primitive for the sizes.
  Deinterleave find_deinterleave(std::size_t item_size, std::size_t channels) const {
    return has(item_size, channels) ? deinterleave[std::countr_zero(item_size)][channels - 2]
                                    : nullptr;
  }
  Interleave find_interleave(std::size_t item_size, std::size_t channels) const {
    return has(item_size, channels) ? interleave[std::countr_zero(item_size)][channels - 2]
                                    : nullptr;
  }

 private:
  static bool has(std::size_t item_size, std::size_t channels) {
    return item_size <= 8 && channels >= 2 && channels <= 4;
  }
};

// `Isa` has deinterleave<Item, Channels> and interleave<Item, Channels>, Item in bytes.
template <class Isa>
constexpr PermuteRuns make_permute_runs() {
  PermuteRuns runs{};
  const auto fill = [&]<std::size_t Row, std::size_t... Column>(std::index_sequence<Column...>) {
    constexpr std::size_t kItem = std::size_t{1} << Row;
    ((runs.deinterleave[Row][Column] = Isa::template deinterleave<kItem, Column + 2>), ...);
    ((runs.interleave[Row][Column] = Isa::template interleave<kItem, Column + 2>), ...);
  };
  [&]<std::size_t... Row>(std::index_sequence<Row...>) {
    (fill.template operator()<Row>(std::make_index_sequence<kPermuteChannels>()), ...);
  }(std::make_index_sequence<kPermuteItems>());
  runs.replace = Isa::replace;
  return runs;
}

// In portable loops: the definition, and the tail of SIMD code.
template <std::size_t Item, std::size_t Channels>
void deinterleave_scalar(const std::byte* pixels, std::size_t count, std::byte* planes,
                         std::ptrdiff_t plane_stride) {
  for (std::size_t c = 0; c < Channels; ++c, planes += plane_stride) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(planes + i * Item, pixels + (i * Channels + c) * Item, Item);
    }
  }
}

template <std::size_t Item, std::size_t Channels>
void interleave_scalar(const std::byte* planes, std::ptrdiff_t plane_stride, std::size_t count,
                       std::byte* pixels) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* plane = planes + i * Item;
    for (std::size_t c = 0; c < Channels; ++c, plane += plane_stride) {
      std::memcpy(pixels + (i * Channels + c) * Item, plane, Item);
    }
  }
}

// The compiler vectorizes it for the target of the function that inlines it.
__attribute__((always_inline)) inline void replace_items(const std::byte* from, std::size_t count,
                                                         std::int64_t value, std::int64_t by,
                                                         std::byte* to) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t item;
    std::memcpy(&item, from + i * sizeof(item), sizeof(item));
    item = item == value ? by : item;
    std::memcpy(to + i * sizeof(item), &item, sizeof(item));
  }
}

extern const PermuteRuns kPermuteScalar;
extern const PermuteRuns kPermuteAvx2;
extern const PermuteRuns kPermuteNeon;

}  // namespace pinfeed::kernels
