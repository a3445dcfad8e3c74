// Lets the work of one thread compile for the device, by nvcc, and for the CPU, where the tests run
// every thread of a launch in turn. Both give the same bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define PINFEED_BOTH __host__ __device__ __forceinline__
#else
#define PINFEED_BOTH inline
#endif

#if defined(__CUDA_ARCH__)
#define PINFEED_UNROLL _Pragma("unroll")
#define PINFEED_NO_UNROLL _Pragma("unroll 1")
#else
#define PINFEED_UNROLL
#define PINFEED_NO_UNROLL
#endif

namespace pinfeed::cuda {

// The upper half of the product.
PINFEED_BOTH std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// Four of the eight bytes of a (0 to 3) and b (4 to 7): the i-th hexadecimal digit of `selector`
// from the right selects byte i of the result.
PINFEED_BOTH std::uint32_t select_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, selector);
#else
  const std::uint64_t both = a | (static_cast<std::uint64_t>(b) << 32);
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t which = (selector >> (4 * i)) & 7u;
    result |= static_cast<std::uint32_t>((both >> (8 * which)) & 0xffu) << (8 * i);
  }
  return result;
#endif
}

// The lower word of (high, low) shifted right by `bits`, 0 to 31.
PINFEED_BOTH std::uint32_t shift_words(std::uint32_t low, std::uint32_t high, unsigned bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, bits);
#else
  return static_cast<std::uint32_t>(((static_cast<std::uint64_t>(high) << 32) | low) >> bits);
#endif
}

// One rounding, to nearest even: IEEE 754 leaves no choice, so host and device agree. The device
// keeps subnormal numbers, because the code is compiled without -ftz.
PINFEED_BOTH float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

PINFEED_BOTH std::uint32_t float_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

PINFEED_BOTH float bits_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// 64 bits, because sizes and positions are that large.
PINFEED_BOTH std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
PINFEED_BOTH std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
PINFEED_BOTH std::int64_t clamp(std::int64_t value, std::int64_t low, std::int64_t high) {
  return larger(low, smaller(value, high));
}
PINFEED_BOTH std::int64_t blocks_of(std::int64_t items, std::int64_t block) {
  return items / block + (items % block != 0);
}

}  // namespace pinfeed::cuda
