// float32 → 16-bit floats, rounded to nearest, ties to even. Plain integer code: the reference for
// the vector instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace pinfeed::kernels {

// IEEE 754 binary16: 5 exponent bits, 10 mantissa bits.
constexpr std::uint16_t to_float16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: quiet, upper payload bits kept, as vcvtps2ph does
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    return static_cast<std::uint16_t>(sign | 0x7c00u);
  }
  if (magnitude >= 0x38800000u) {  // normal: 2^-14 and above
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  if (magnitude <= 0x33000000u) {  // 2^-25 is the tie with zero, which is even
    return static_cast<std::uint16_t>(sign);
  }
  // Subnormal: shift the mantissa with its hidden bit to units of 2^-24.
  const std::uint32_t shift = 126u - (magnitude >> 23);
  const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t rounded = mantissa + (half - 1) + ((mantissa >> shift) & 1u);
  return static_cast<std::uint16_t>(sign | (rounded >> shift));
}

// bfloat16: the upper half of a float32.
constexpr std::uint16_t to_bfloat16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace pinfeed::kernels
