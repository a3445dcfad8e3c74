// Converts bytes to vectors of 16 bytes of float32, float16, bfloat16 or bytes.
#pragma once

#include <cstdint>

#include "cuda/memory.h"
#include "cuda/portable.h"
#include "kernels/image_tensor.h"
#include "kernels/round.h"

namespace pinfeed::cuda {

using kernels::ImageLayout;
using kernels::ImageTensor;
using kernels::PixelType;

template <PixelType kType>
inline constexpr int kItemBytes = static_cast<int>(kernels::pixel_size(kType));
template <PixelType kType>
inline constexpr int kVectorItems = kVectorBytes / kItemBytes<kType>;

struct Affine {
  float scale = 0;
  float bias = 0;
};

// The maximum number of channels whose constants are passed by value, with the launch.
inline constexpr std::int64_t kMaxChannels = 128;

// The constants of every channel.
class ChannelTable {
 public:
  ChannelTable() = default;
  explicit ChannelTable(const ImageTensor& batch) {
    if (batch.scale == nullptr) return;  // byte outputs need no constants
    for (std::int64_t c = 0; c < batch.channels; ++c) {
      affine_[c] = {batch.scale[c], batch.bias[c]};
    }
  }

  PINFEED_BOTH Affine at(std::int64_t channel) const { return affine_[channel]; }

 private:
  Affine affine_[kMaxChannels];
};

// Byte `index` of consecutive words.
template <int kCount>
PINFEED_BOTH std::uint32_t byte_of(const Words<kCount>* words, int index) {
  const int word = index / 4;
  return (words[word / kCount].at[word % kCount] >> (8 * (index % 4))) & 0xffu;
}

// The exact value. 2^23 has steps of 1, so its lowest bits hold the byte: a byte selection and an
// addition, which every GPU does at full rate. A conversion of integers may be four times slower.
PINFEED_BOTH float byte_value(std::uint32_t byte) {
  return bits_float(0x4b000000u | byte) - 8388608.0f;
}

// Two values rounded to 16 bits each, to nearest even. The device's instructions give the same bits
// as kernels/round.h except for NaN: they keep subnormal numbers and round values that are too
// large to infinity. NaN can't arise: byte, scale and bias are finite, so is their exact result,
// and rounding makes it at most infinite.
template <PixelType kType>
PINFEED_BOTH std::uint32_t round_pair(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t bits;
#if __CUDA_ARCH__ >= 800
  if constexpr (kType == PixelType::float16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
#else
  if constexpr (kType == PixelType::float16) {
    std::uint16_t low_bits, high_bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(low_bits) : "f"(low));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(high_bits) : "f"(high));
    bits = low_bits | (static_cast<std::uint32_t>(high_bits) << 16);
  } else {
    const std::uint32_t a = float_bits(low), b = float_bits(high);
    bits = select_bytes(a + 0x7fffu + ((a >> 16) & 1u), b + 0x7fffu + ((b >> 16) & 1u), 0x7632);
  }
#endif
  return bits;
#else
  const auto round = [](float value) -> std::uint32_t {
    return kType == PixelType::float16 ? kernels::to_float16_bits(value)
                                       : kernels::to_bfloat16_bits(value);
  };
  return round(low) | (round(high) << 16);
#endif
}

// A vector of items, from the same number of bytes and constants.
template <PixelType kType>
PINFEED_BOTH Vector convert(const std::uint32_t* bytes, const Affine* affine) {
  Vector vector;
  PINFEED_UNROLL
  for (int word = 0; word < 4; ++word) {
    if constexpr (kType == PixelType::uint8) {
      const std::uint32_t* const four = bytes + 4 * word;
      vector.at[word] = four[0] | (four[1] << 8) | (four[2] << 16) | (four[3] << 24);
    } else {
      const auto value = [&](int i) {
        return multiply_add(byte_value(bytes[i]), affine[i].scale, affine[i].bias);
      };
      if constexpr (kType == PixelType::float32) {
        vector.at[word] = float_bits(value(word));
      } else {
        vector.at[word] = round_pair<kType>(value(2 * word), value(2 * word + 1));
      }
    }
  }
  return vector;
}

}  // namespace pinfeed::cuda
