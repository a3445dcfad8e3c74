// Images whose bytes are in the order of the output: planes, pixels of 3 or 4 channels, and bytes
// of any number of channels that stay bytes. Loads and stores of a warp are adjacent.
#pragma once

#include <cstdint>

#include "cuda/image_runs.h"
#include "cuda/memory.h"
#include "cuda/pixels.h"

namespace pinfeed::cuda {

// The constants repeat every kPeriod items of a run: 1 in a plane, or the pixel's channels.
template <PixelType kType, int kPeriod>
struct SameOrder {
  static constexpr int kThreads = 256;
  static constexpr int kItems = kVectorItems<kType>;  // per group
  static constexpr int kGroups = 4;  // per thread; all their loads are issued at once
  static constexpr int kLoadWords = kItems / 4;
  static constexpr int kAlignment = kItems;

  const std::uint8_t* images;
  Runs runs;
  std::int64_t image_stride;  // bytes
  std::int64_t row_stride;    // bytes
  std::int64_t plane_stride;  // bytes
  std::uint8_t* out;
  std::int64_t groups;     // of the batch
  ChannelTable channels;   // per plane
  Affine affine[kPeriod];  // per pixel

  std::int64_t blocks() const { return blocks_of(groups, kThreads * kGroups); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    Words<kLoadWords> loaded[kGroups];
    GroupPosition positions[kGroups];
    const std::int64_t first = block * (kGroups * kThreads) + thread;
    PINFEED_UNROLL
    for (int i = 0; i < kGroups; ++i) {
      const std::int64_t group = first + i * kThreads;
      if (group >= groups) continue;
      positions[i] = runs.find(group);
      loaded[i] = load_words<kLoadWords>(find(positions[i]));
    }
    PINFEED_UNROLL
    for (int i = 0; i < kGroups; ++i) {
      const std::int64_t group = first + i * kThreads;
      if (group >= groups) continue;
      store_words<4>(out + group * kVectorBytes, converted(loaded[i], positions[i]));
    }
  }

 private:
  // The source's bytes of a group.
  PINFEED_BOTH const std::uint8_t* find(const GroupPosition& position) const {
    return images + position.image * image_stride + position.plane * plane_stride +
           position.row * row_stride + position.group * kItems;
  }

  // The constants of a group, rotated to its first item.
  PINFEED_BOTH void find_constants(const GroupPosition& position, Affine* of_period) const {
    if constexpr (kPeriod == 3) {
      // The position in the period at which a group begins. A run has fewer than 2^32 groups, and a
      // 32-bit division by 3 is a multiplication.
      const std::uint32_t rest = static_cast<std::uint32_t>(position.group) % 3u;
      const std::uint32_t phase = kItems % 3 == 1 ? rest : (2 * rest) % 3u;
      const Affine a = affine[0], b = affine[1], c = affine[2];
      of_period[0] = phase == 0 ? a : phase == 1 ? b : c;
      of_period[1] = phase == 0 ? b : phase == 1 ? c : a;
      of_period[2] = phase == 0 ? c : phase == 1 ? a : b;
    } else if constexpr (kPeriod == 4) {
      PINFEED_UNROLL
      for (int c = 0; c < kPeriod; ++c) of_period[c] = affine[c];
    } else {
      of_period[0] = channels.at(position.plane);
    }
  }

  PINFEED_BOTH Vector converted(const Words<kLoadWords>& loaded,
                                const GroupPosition& position) const {
    if constexpr (kType == PixelType::uint8) {
      return loaded;
    } else {
      Affine of_period[kPeriod];
      find_constants(position, of_period);
      std::uint32_t bytes[kItems];
      Affine constants[kItems];
      PINFEED_UNROLL
      for (int i = 0; i < kItems; ++i) {
        bytes[i] = byte_of(&loaded, i);
        constants[i] = of_period[i % kPeriod];
      }
      return convert<kType>(bytes, constants);
    }
  }
};

}  // namespace pinfeed::cuda
