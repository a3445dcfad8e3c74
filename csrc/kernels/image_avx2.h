// Blocks of 16 image values for AVX2 + FMA + F16C. The AVX-512 file includes this one too and
// replaces what it does better.
//
// The including files are compiled for the baseline; each function opens its own target, so that
// no inline library code compiled for a wider machine can leak into the portable path.
#pragma once

#include <immintrin.h>

#include <utility>

#include "kernels/image_runs.h"
#include "kernels/shuffles.h"

#define PINFEED_AVX2 __attribute__((target("avx2,fma,f16c")))
#define PINFEED_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace pinfeed::kernels {
namespace {

PINFEED_AVX2_INLINE __m128i load16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

template <bool Streaming>
PINFEED_AVX2_INLINE void store16(void* out, __m128i value) {
  if constexpr (Streaming) {
    _mm_stream_si128(static_cast<__m128i*>(out), value);
  } else {
    _mm_storeu_si128(static_cast<__m128i*>(out), value);
  }
}

template <bool Streaming>
PINFEED_AVX2_INLINE void store32(void* out, __m256i value) {
  if constexpr (Streaming) {
    _mm256_stream_si256(static_cast<__m256i*>(out), value);
  } else {
    _mm256_storeu_si256(static_cast<__m256i*>(out), value);
  }
}

template <auto& Table, int To, int From>
PINFEED_AVX2_INLINE __m128i shuffled_part(__m128i in) {
  if constexpr (Table.used(To, From)) {
    return _mm_shuffle_epi8(in, load16(Table.table[To][From].data()));
  } else {
    return _mm_setzero_si128();
  }
}

template <auto& Table, int To, int Step, int... From>
PINFEED_AVX2_INLINE __m128i shuffled(const __m128i (&in)[Step],
                                     std::integer_sequence<int, From...>) {
  return (shuffled_part<Table, To, From>(in[From]) | ...);
}

// Writes a whole block as Table says: out[to] = its bytes from all in[from].
template <auto& Table, bool Streaming, int Step, int... To>
PINFEED_AVX2_INLINE void store_shuffled(const __m128i (&in)[Step], std::uint8_t* out,
                                        std::ptrdiff_t out_stride,
                                        std::integer_sequence<int, To...> all) {
  (store16<Streaming>(out + To * out_stride, shuffled<Table, To>(in, all)), ...);
}

// Eight pixels in two halves of four; `part` says which. bfloat16 is packed from two vectors within
// 128-bit lanes, so it takes pixels 0-3 | 8-11 and 4-7 | 12-15, the others 0-7 and 8-15. Backwards,
// these are counted from the last.
template <PixelType Type, bool Backwards>
constexpr int half_of(int part, int half) {
  const int quarter = Type == PixelType::bfloat16 ? 2 * half + part : 2 * part + half;
  return Backwards ? 3 - quarter : quarter;
}

// Where pixels 4 * quarter .. 4 * quarter + 3 are loaded from: 16 bytes that hold them and do not
// reach past pixel 15.
template <int Step>
constexpr int load_offset(int quarter) {
  const int first = quarter * 4 * Step;
  return first + 16 <= 16 * Step ? first : 16 * Step - 16;
}

// Picks channel `channel` of the four pixels in each lane, widened to 32 bits.
template <PixelType Type, int Step, bool Backwards>
PINFEED_AVX2_INLINE __m256i widening_shuffle(int part, int channel) {
  alignas(32) std::int8_t index[32];
  for (int lane = 0; lane < 32; ++lane) {
    const int quarter = half_of<Type, Backwards>(part, lane / 16);
    const int pixel = Backwards ? 3 - lane % 16 / 4 : lane % 16 / 4;
    const int byte = (quarter * 4 + pixel) * Step + channel - load_offset<Step>(quarter);
    index[lane] = static_cast<std::int8_t>(lane % 4 == 0 ? byte : -1);
  }
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
}

template <PixelType Type, int Step, bool Backwards>
PINFEED_AVX2_INLINE __m256i load_pixels(const std::uint8_t* pixels, int part) {
  return _mm256_set_m128i(load16(pixels + load_offset<Step>(half_of<Type, Backwards>(part, 1))),
                          load16(pixels + load_offset<Step>(half_of<Type, Backwards>(part, 0))));
}

template <bool Backwards>
PINFEED_AVX2_INLINE __m128i load_plane(const std::uint8_t* pixels) {
  const __m128i bytes = load16(pixels);
  if constexpr (!Backwards) return bytes;
  return _mm_shuffle_epi8(bytes, load16(kReverse<1>.table[0][0].data()));
}

PINFEED_AVX2_INLINE __m256 to_float(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

// to_bfloat16_bits in 32-bit lanes, for numbers and infinities (finite constants never give a NaN).
PINFEED_AVX2_INLINE __m256i round_bfloat16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd),
                           16);
}

// Sixteen float32 values, ordered as half_of says, stored as Type.
template <PixelType Type, bool Streaming>
PINFEED_AVX2_INLINE void store_block(void* out, __m256 part0, __m256 part1) {
  if constexpr (Type == PixelType::float32) {
    store32<Streaming>(out, _mm256_castps_si256(part0));
    store32<Streaming>(static_cast<float*>(out) + 8, _mm256_castps_si256(part1));
  } else if constexpr (Type == PixelType::float16) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT;
    store32<Streaming>(out, _mm256_set_m128i(_mm256_cvtps_ph(part1, kNearestEven),
                                             _mm256_cvtps_ph(part0, kNearestEven)));
  } else {
    store32<Streaming>(out, _mm256_packus_epi32(round_bfloat16(part0), round_bfloat16(part1)));
  }
}

// One plane.
template <PixelType Type, bool Streaming, bool Backwards>
PINFEED_AVX2 void plane_blocks_avx2(const std::uint8_t* pixels, std::size_t blocks, float scale,
                                    float bias, std::byte* out) {
  const __m256 scales = _mm256_set1_ps(scale), biases = _mm256_set1_ps(bias);
  for (std::size_t block = 0; block < blocks; ++block) {
    __m128i bytes = load_plane<Backwards>(pixels);
    if constexpr (Type == PixelType::bfloat16) bytes = _mm_shuffle_epi32(bytes, 0xd8);
    store_block<Type, Streaming>(
        out, _mm256_fmadd_ps(to_float(bytes), scales, biases),
        _mm256_fmadd_ps(to_float(_mm_srli_si128(bytes, 8)), scales, biases));
    pixels += kNext<1, Backwards>;
    out += kBlock * pixel_size(Type);
  }
}

struct Avx2 {
  template <PixelType Type, int Step, bool Streaming, bool Backwards>
  PINFEED_AVX2 static void planes_blocks(const std::uint8_t* pixels, std::size_t blocks,
                                         const float* scale, const float* bias, std::byte* out,
                                         std::ptrdiff_t plane_stride) {
    if constexpr (Type == PixelType::uint8) {
      permute_blocks<Step, Streaming, Backwards>(pixels, blocks, out, plane_stride);
    } else if constexpr (Step == 1) {
      plane_blocks_avx2<Type, Streaming, Backwards>(pixels, blocks, *scale, *bias, out);
    } else {
      __m256i shuffle[2][Step];
      __m256 scales[Step], biases[Step];
      for (int c = 0; c < Step; ++c) {
        scales[c] = _mm256_set1_ps(scale[c]);
        biases[c] = _mm256_set1_ps(bias[c]);
        for (int part = 0; part < 2; ++part) {
          shuffle[part][c] = widening_shuffle<Type, Step, Backwards>(part, c);
        }
      }
      for (std::size_t block = 0; block < blocks; ++block) {
        const __m256i part0 = load_pixels<Type, Step, Backwards>(pixels, 0);
        const __m256i part1 = load_pixels<Type, Step, Backwards>(pixels, 1);
        for (int c = 0; c < Step; ++c) {
          const __m256 value0 = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(part0, shuffle[0][c]));
          const __m256 value1 = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(part1, shuffle[1][c]));
          store_block<Type, Streaming>(out + c * plane_stride,
                                       _mm256_fmadd_ps(value0, scales[c], biases[c]),
                                       _mm256_fmadd_ps(value1, scales[c], biases[c]));
        }
        pixels += kNext<Step, Backwards>;
        out += kBlock * pixel_size(Type);
      }
    }
  }

  template <PixelType Type, bool Streaming>
  PINFEED_AVX2 static void packed_blocks(const std::uint8_t* values, std::size_t blocks,
                                         const PackedConstants& constants, std::size_t phase,
                                         std::byte* out) {
    const std::size_t period = constants.period, advance = kBlock % period;
    for (std::size_t block = 0; block < blocks; ++block) {
      const float* scale = constants.scale + phase;
      const float* bias = constants.bias + phase;
      const __m128i bytes = load16(values);
      const __m256 low =
          _mm256_fmadd_ps(to_float(bytes), _mm256_loadu_ps(scale), _mm256_loadu_ps(bias));
      const __m256 high = _mm256_fmadd_ps(to_float(_mm_srli_si128(bytes, 8)),
                                          _mm256_loadu_ps(scale + 8), _mm256_loadu_ps(bias + 8));
      if constexpr (Type == PixelType::bfloat16) {
        // The constants are in order, so the order of the lanes is mended after the pack.
        const __m256i packed = _mm256_packus_epi32(round_bfloat16(low), round_bfloat16(high));
        store32<Streaming>(out, _mm256_permute4x64_epi64(packed, 0xd8));
      } else {
        store_block<Type, Streaming>(out, low, high);
      }
      phase += advance;
      if (phase >= period) phase -= period;
      values += kBlock;
      out += kBlock * pixel_size(Type);
    }
  }

  template <int Step>
  PINFEED_AVX2 static void reverse_blocks(const std::uint8_t* pixels, std::size_t blocks,
                                          std::uint8_t* out_end) {
    for (std::size_t block = 0; block < blocks; ++block) {
      __m128i in[Step];
      for (int from = 0; from < Step; ++from) in[from] = load16(pixels + 16 * from);
      out_end -= kBlock * Step;
      store_shuffled<kReverse<Step>, false>(in, out_end, 16,
                                            std::make_integer_sequence<int, Step>{});
      pixels += kBlock * Step;
    }
  }

  template <int Step>
  PINFEED_AVX2 static void interleave_blocks(const std::uint8_t* planes,
                                             std::ptrdiff_t plane_stride, std::size_t blocks,
                                             std::uint8_t* out) {
    for (std::size_t block = 0; block < blocks; ++block) {
      __m128i in[Step];
      for (int from = 0; from < Step; ++from) in[from] = load16(planes + from * plane_stride);
      store_shuffled<kInterleave<Step>, false>(in, out, 16,
                                               std::make_integer_sequence<int, Step>{});
      planes += kBlock;
      out += kBlock * Step;
    }
  }

 private:
  template <int Step, bool Streaming, bool Backwards>
  PINFEED_AVX2 static void permute_blocks(const std::uint8_t* pixels, std::size_t blocks,
                                          std::byte* out, std::ptrdiff_t plane_stride) {
    for (std::size_t block = 0; block < blocks; ++block) {
      __m128i in[Step];
      for (int from = 0; from < Step; ++from) in[from] = load16(pixels + 16 * from);
      store_shuffled<kDeinterleave<Step, Backwards>, Streaming>(
          in, reinterpret_cast<std::uint8_t*>(out), plane_stride,
          std::make_integer_sequence<int, Step>{});
      pixels += kNext<Step, Backwards>;
      out += kBlock;
    }
  }
};

}  // namespace
}  // namespace pinfeed::kernels
