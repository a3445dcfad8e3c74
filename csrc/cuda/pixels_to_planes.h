// HWC to CHW, for 3 and 4 channels with adjacent bytes: a thread takes the pixels that fill a
// vector of each plane. A warp then writes 512 adjacent bytes of a plane at a time, without shared
// memory; its loads overlap only in the first-level cache.
#pragma once

#include <cstdint>

#include "cuda/image_runs.h"
#include "cuda/memory.h"
#include "cuda/pixels.h"

namespace pinfeed::cuda {

template <PixelType kType, int kChannels>
struct PixelsToPlanes {
  static constexpr int kThreads = 256;
  static constexpr int kItems = kVectorItems<kType>;  // pixels per group
  // Groups per thread; all their loads are issued before the first is used.
  static constexpr int kGroups = kType == PixelType::uint8 ? 1 : 2;
  static constexpr int kLoadWords = kChannels == 3 ? kItems / 4 : 4;
  static constexpr int kLoads = kItems * kChannels / (4 * kLoadWords);
  // The alignment of the sources' addresses and strides.
  static constexpr int kAlignment = 4 * kLoadWords;

  const std::uint8_t* images;
  Runs runs;
  std::int64_t image_stride;  // bytes
  std::int64_t row_stride;    // bytes
  std::int64_t plane_bytes;   // of the output
  std::uint8_t* out;
  std::int64_t groups;  // of the batch
  Affine affine[kChannels];

  std::int64_t blocks() const { return blocks_of(groups, kThreads * kGroups); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    Words<kLoadWords> loaded[kGroups][kLoads];
    std::uint8_t* to[kGroups];
    PINFEED_UNROLL
    for (int i = 0; i < kGroups; ++i) {
      const std::int64_t group = (block * kGroups + i) * kThreads + thread;
      to[i] = nullptr;
      if (group >= groups) continue;
      const GroupPosition position = runs.find(group);
      const std::int64_t vector = position.row * runs.groups.divisor() + position.group;
      to[i] = out + position.image * kChannels * plane_bytes + vector * kVectorBytes;
      const std::uint8_t* const from = images + position.image * image_stride +
                                       position.row * row_stride +
                                       position.group * (kItems * kChannels);
      PINFEED_UNROLL
      for (int load = 0; load < kLoads; ++load) {
        loaded[i][load] = load_words<kLoadWords>(from + load * kAlignment);
      }
    }
    PINFEED_UNROLL
    for (int i = 0; i < kGroups; ++i) {
      if (to[i] == nullptr) continue;
      PINFEED_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        store_words<4>(to[i] + c * plane_bytes, plane(loaded[i], c));
      }
    }
  }

 private:
  PINFEED_BOTH Vector plane(const Words<kLoadWords>* pixels, int c) const {
    std::uint32_t bytes[kItems];
    Affine constants[kItems];
    PINFEED_UNROLL
    for (int i = 0; i < kItems; ++i) {
      bytes[i] = byte_of(pixels, i * kChannels + c);
      constants[i] = affine[c];
    }
    return convert<kType>(bytes, constants);
  }
};

}  // namespace pinfeed::cuda
