// Images of any strides, number of channels and alignment. A thread loads each item's byte
// separately and writes a vector of 16 bytes.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/memory.h"
#include "cuda/pixels.h"

namespace pinfeed::cuda {

template <PixelType kType, ImageLayout kLayout>
struct AnyImages {
  static constexpr int kThreads = 256;
  static constexpr int kItems = kVectorItems<kType>;

  const std::uint8_t* images;
  std::int64_t image_stride;  // bytes
  std::int64_t row_stride;
  std::int64_t column_stride;
  std::int64_t channel_stride;
  Divider height;
  Divider width;
  Divider channels;
  std::uint8_t* out;
  std::int64_t items;
  ChannelTable constants;

  std::int64_t blocks() const { return blocks_of(blocks_of(items, kItems), kThreads); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    const std::int64_t first = (block * kThreads + thread) * kItems;
    if (first >= items) return;
    const Vector vector = load_items(first);
    std::uint8_t* const to = out + first * kItemBytes<kType>;
    if (first + kItems <= items) return store_words<4>(to, vector);
    // Constant indices, because run-time indices would move the vector to local memory.
    PINFEED_UNROLL
    for (int i = 0; i < kVectorBytes; ++i) {
      if (first * kItemBytes<kType> + i < items * kItemBytes<kType>) {
        to[i] = static_cast<std::uint8_t>(byte_of(&vector, i));
      }
    }
  }

 private:
  // Axes of an image of the output, from the outermost to the innermost.
  static constexpr bool kPlanes = kLayout == ImageLayout::chw;
  PINFEED_BOTH const Divider& axis0() const { return kPlanes ? channels : height; }
  PINFEED_BOTH const Divider& axis1() const { return kPlanes ? height : width; }
  PINFEED_BOTH const Divider& axis2() const { return kPlanes ? width : channels; }

  struct Position {
    std::int64_t image;
    std::int64_t axis0;
    std::int64_t axis1;
    std::int64_t axis2;

    PINFEED_BOTH std::int64_t channel() const { return kPlanes ? axis0 : axis2; }
    PINFEED_BOTH std::int64_t row() const { return kPlanes ? axis1 : axis0; }
    PINFEED_BOTH std::int64_t column() const { return kPlanes ? axis2 : axis1; }
  };

  PINFEED_BOTH Position position_of(std::int64_t item) const {
    const Division at2 = axis2().divide(item);
    const Division at1 = axis1().divide(at2.quotient);
    const Division at0 = axis0().divide(at1.quotient);
    return {at0.quotient, at0.remainder, at1.remainder, at2.remainder};
  }

  PINFEED_BOTH std::uint32_t byte_at(const Position& position) const {
    return load_byte(images + position.image * image_stride + position.row() * row_stride +
                     position.column() * column_stride + position.channel() * channel_stride);
  }

  PINFEED_BOTH Affine constants_of(const Position& position) const {
    return kType == PixelType::uint8 ? Affine{} : constants.at(position.channel());
  }

  // The vector of items from `first` on. Behind the last image, items of the last one repeat.
  PINFEED_BOTH Vector load_items(std::int64_t first) const {
    Position position = position_of(first);
    std::uint32_t bytes[kItems];
    Affine affine[kItems];
    PINFEED_UNROLL
    for (int k = 0; k < kItems; ++k) {
      bytes[k] = byte_at(position);
      affine[k] = constants_of(position);
      if (++position.axis2 < axis2().divisor()) continue;
      position.axis2 = 0;
      if (++position.axis1 < axis1().divisor()) continue;
      position.axis1 = 0;
      if (++position.axis0 < axis0().divisor()) continue;
      position.axis0 = 0;
      if (first + k + 1 < items) ++position.image;
    }
    return convert<kType>(bytes, affine);
  }
};

}  // namespace pinfeed::cuda
