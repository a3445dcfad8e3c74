// Scales and biases for tests of images, and the value of every byte under them.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "kernels/image.h"
#include "tests/rounding.h"

namespace pinfeed::tests {

// Pairs of scale and bias, with the value of every byte under each.
class Constants {
 public:
  static constexpr std::size_t kPairs = 1009;  // a prime: no period of a kernel divides it

  Constants() : values_(kPairs * 256) {
    std::mt19937_64 random(1);
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
      scale_[pair] = random_scale(pair, random);
      bias_[pair] = random_bias(pair, random);
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const float value = std::fma(static_cast<float>(byte), scale_[pair], bias_[pair]);
        values_[pair * 256 + byte] = {std::bit_cast<std::uint32_t>(value), float16_bits(value),
                                      bfloat16_bits(value)};
      }
    }
  }

  float scale(std::size_t pair) const { return scale_[pair % kPairs]; }
  float bias(std::size_t pair) const { return bias_[pair % kPairs]; }

  void store(kernels::PixelType type, std::size_t pair, std::uint8_t byte, std::byte* to) const {
    const Value& value = values_[pair % kPairs * 256 + byte];
    switch (type) {
      case kernels::PixelType::float32:
        std::memcpy(to, &value.float32, 4);
        break;
      case kernels::PixelType::float16:
        std::memcpy(to, &value.float16, 2);
        break;
      case kernels::PixelType::bfloat16:
        std::memcpy(to, &value.bfloat16, 2);
        break;
      case kernels::PixelType::uint8:
        *to = std::byte{byte};
        break;
      default:
        std::abort();  // bytes become nothing else here
    }
  }

 private:
  struct Value {
    std::uint32_t float32;
    std::uint16_t float16;
    std::uint16_t bfloat16;
  };

  // A float between 1/2 and 1 in magnitude.
  static float fraction(std::mt19937_64& random) {
    const float magnitude = 0.5f + static_cast<float>(random() % (1 << 23)) * 0x1p-24f;
    return random() % 2 == 0 ? magnitude : -magnitude;
  }

  // Every other pair is ordinary; the others lead to ties, subnormal numbers, infinities.
  static float random_scale(std::size_t pair, std::mt19937_64& random) {
    constexpr float special[] = {0x1p-9f,   0x1p-14f,  0x1p-17f, 0x1p-26f, 0x1p-140f,
                                 0x1p-149f, 0x1p+121f, 300.0f,   0.0f,     1.0f};
    if (pair % 2 == 0) return fraction(random) / 64;
    const float scale = special[random() % std::size(special)];
    return random() % 2 == 0 ? scale : scale * fraction(random);
  }

  static float random_bias(std::size_t pair, std::mt19937_64& random) {
    constexpr float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-15f, 0x1p-130f, -1000.0f};
    if (pair % 2 == 0) return 4 * fraction(random);
    return special[random() % std::size(special)];
  }

  float scale_[kPairs];
  float bias_[kPairs];
  std::vector<Value> values_;
};

inline const Constants& constants() {
  static const Constants all;
  return all;
}

}  // namespace pinfeed::tests
