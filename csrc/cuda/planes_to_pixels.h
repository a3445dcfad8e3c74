// CHW in, HWC out, for 3 and 4 channels whose planes' bytes are adjacent. A block brings the bytes
// of a tile into the order of the output in shared memory, where they take a quarter or half of the
// room that the results would, and writes the output in order from there.
#pragma once

#include <cstdint>

#include "cuda/image_runs.h"
#include "cuda/memory.h"
#include "cuda/pixels.h"

namespace pinfeed::cuda {

template <PixelType kType, int kChannels>
struct PlanesToPixels {
  static constexpr int kThreads = 256;
  static constexpr int kItems = kVectorItems<kType>;  // pixels of a group
  static constexpr int kLoadWords = kItems / 4;
  static constexpr int kAlignment = kItems;
  static constexpr int kGroupBytes = kItems * kChannels;
  // The tile's pixels, and for each group whether its image was found.
  static constexpr int kTileBytes = kThreads * kGroupBytes;
  static constexpr int kSharedBytes = kTileBytes + kThreads;

  SourceImages source;
  Runs runs;
  std::int64_t row_stride;    // bytes
  std::int64_t plane_stride;  // bytes
  std::uint8_t* out;
  std::int64_t groups;  // of the batch; a group is kChannels vectors of the output
  std::uint32_t fill;
  Affine affine[kChannels];

  std::int64_t blocks() const { return blocks_of(groups, kThreads); }

  // Each thread brings the pixels of a group into the tile. All have to, before the first writes.
  PINFEED_BOTH void gather(std::int64_t block, int thread, std::uint8_t* shared) const {
    const std::int64_t group = block * kThreads + thread;
    if (group >= groups) return;
    const GroupPlace place = runs.find(group);
    const std::uint8_t* const image = source.find(place.image);
    shared[kTileBytes + thread] = image != nullptr;
    if (image == nullptr) return;
    const std::uint8_t* const from = image + place.row * row_stride + place.group * kItems;
    Words<kLoadWords> planes[kChannels];
    PINFEED_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      planes[c] = load_words<kLoadWords>(from + c * plane_stride);
    }
    std::uint32_t pixels[kGroupBytes / 4];
    PINFEED_UNROLL
    for (int word = 0; word < kLoadWords; ++word) {
      interleave(planes, word, pixels + kChannels * word);
    }
    // As wide as keeps the warp from using a bank of shared memory twice in one access.
    constexpr int kStoreWords = kChannels == 3 ? kLoadWords : 4;
    PINFEED_UNROLL
    for (int i = 0; i < kGroupBytes / (4 * kStoreWords); ++i) {
      Words<kStoreWords> words;
      PINFEED_UNROLL
      for (int j = 0; j < kStoreWords; ++j) words.at[j] = pixels[i * kStoreWords + j];
      store_words<kStoreWords>(shared + swizzled(thread * kGroupBytes + i * 4 * kStoreWords),
                               words);
    }
  }

  // Each thread writes some vectors of the tile, adjacent to those of its neighbours.
  PINFEED_BOTH void write(std::int64_t block, int thread, const std::uint8_t* shared) const {
    PINFEED_UNROLL
    for (int i = 0; i < kChannels; ++i) {
      const int index = i * kThreads + thread;
      const std::int64_t vector = block * (kThreads * kChannels) + index;
      if (vector >= groups * kChannels) continue;
      Vector items = repeat_item<kType>(fill);
      if (shared[kTileBytes + index / kChannels] != 0) {
        items = converted(load_shared<kLoadWords>(shared + swizzled(index * kItems)), index);
      }
      store_words<4>(out + vector * kVectorBytes, items);
    }
  }

 private:
  // Where a byte of the tile lies. Groups of 4 channels are 16, 32 or 64 bytes: stored one beside
  // the other, the threads of a warp would meet in the same banks, so the 16-byte pieces of each
  // 128 bytes change places.
  PINFEED_BOTH static int swizzled(int byte) {
    if constexpr (kChannels != 4) return byte;
    const int piece = byte / 16;
    return (piece ^ ((piece >> 3) & 3)) * 16 + byte % 16;
  }

  // Word `word` of each plane, four pixels, into kChannels words of pixels.
  PINFEED_BOTH static void interleave(const Words<kLoadWords>* planes, int word,
                                      std::uint32_t* pixels) {
    const std::uint32_t a = planes[0].at[word], b = planes[1].at[word], c = planes[2].at[word];
    if constexpr (kChannels == 3) {
      pixels[0] = select_bytes(select_bytes(a, b, 0x1040), c, 0x3410);  // a0 b0 c0 a1
      pixels[1] = select_bytes(select_bytes(b, c, 0x2051), a, 0x3610);  // b1 c1 a2 b2
      pixels[2] = select_bytes(select_bytes(c, a, 0x3072), b, 0x3710);  // c2 a3 b3 c3
    } else {
      const std::uint32_t d = planes[3].at[word];
      const std::uint32_t ab_low = select_bytes(a, b, 0x5140), ab_high = select_bytes(a, b, 0x7362);
      const std::uint32_t cd_low = select_bytes(c, d, 0x5140), cd_high = select_bytes(c, d, 0x7362);
      pixels[0] = select_bytes(ab_low, cd_low, 0x5410);
      pixels[1] = select_bytes(ab_low, cd_low, 0x7632);
      pixels[2] = select_bytes(ab_high, cd_high, 0x5410);
      pixels[3] = select_bytes(ab_high, cd_high, 0x7632);
    }
  }

  PINFEED_BOTH Vector converted(const Words<kLoadWords>& loaded, int index) const {
    std::uint32_t bytes[kItems];
    Affine constants[kItems];
    Affine of_period[kChannels];
    if constexpr (kChannels == 3) {
      // A vector begins with channel index * kItems % 3: 4 and 16 leave 1, 8 leaves 2.
      const int phase = kItems % 3 == 1 ? index % 3 : (2 * index) % 3;
      of_period[0] = phase == 0 ? affine[0] : phase == 1 ? affine[1] : affine[2];
      of_period[1] = phase == 0 ? affine[1] : phase == 1 ? affine[2] : affine[0];
      of_period[2] = phase == 0 ? affine[2] : phase == 1 ? affine[0] : affine[1];
    } else {
      PINFEED_UNROLL
      for (int c = 0; c < kChannels; ++c) of_period[c] = affine[c];
    }
    PINFEED_UNROLL
    for (int i = 0; i < kItems; ++i) {
      bytes[i] = byte_of(&loaded, i);
      constants[i] = of_period[i % kChannels];
    }
    return convert<kType>(bytes, constants);
  }
};

}  // namespace pinfeed::cuda
