// Rounding of a float32 to a shorter binary format by its definition: arithmetic on the value,
// while the kernels work on its bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace pinfeed::tests {

// The nearest number of a format of 16 bits with ExponentBits and MantissaBits, ties to even. A NaN
// stays one: quiet, with its sign and the upper bits of its payload.
template <int ExponentBits, int MantissaBits>
std::uint16_t rounded_bits(float value) {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  constexpr int infinity = ((1 << ExponentBits) - 1) << MantissaBits;
  int code = infinity;
  if (std::isnan(value)) {
    const auto payload = static_cast<int>(std::bit_cast<std::uint32_t>(value) & 0x7fffff);
    code |= 1 << (MantissaBits - 1) | payload >> (23 - MantissaBits);
  } else if (std::isfinite(value) && value != 0) {
    // The spacing of the format's numbers around the value is 2^(exponent - MantissaBits).
    const int exponent = std::max(std::ilogb(value), 1 - bias);
    const double units =
        std::nearbyint(std::ldexp(std::fabs(static_cast<double>(value)), MantissaBits - exponent));
    // A carry into the next power of two, or out of the subnormal numbers, comes out right.
    code = ((exponent + bias - 1) << MantissaBits) + static_cast<int>(units);
    if (code > infinity) code = infinity;
  } else if (value == 0) {
    code = 0;
  }
  return static_cast<std::uint16_t>((std::signbit(value) ? 0x8000 : 0) | code);
}

inline std::uint16_t float16_bits(float value) { return rounded_bits<5, 10>(value); }
inline std::uint16_t bfloat16_bits(float value) { return rounded_bits<8, 7>(value); }

// The number that a float16 represents.
inline float float16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                  : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  if (exponent == 31) magnitude = mantissa == 0 ? INFINITY : NAN;
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Calls visit(value) for numbers at which the rounding to 16 bits changes: numbers that both
// formats hold, the middle to the next one, and the neighbors of both.
template <class Visit>
void visit_rounding_edges(const Visit& visit) {
  const auto visit_near = [&](std::uint32_t bits) {
    for (const std::uint32_t near : {bits - 1, bits, bits + 1}) visit(std::bit_cast<float>(near));
  };
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const float value = float16_value(static_cast<std::uint16_t>(code));
    const float next = float16_value(static_cast<std::uint16_t>(code + 1));
    visit_near(std::bit_cast<std::uint32_t>(value));
    visit_near(std::bit_cast<std::uint32_t>(value + (next - value) / 2));
    visit_near(code << 16);  // a bfloat16 is the upper half
    visit_near(code << 16 | 0x8000);
  }
  // The middle between the largest number and the one that would follow it, were it not infinity.
  visit_near(std::bit_cast<std::uint32_t>(65520.0f));
  visit_near(std::bit_cast<std::uint32_t>(-65520.0f));
}

}  // namespace pinfeed::tests
