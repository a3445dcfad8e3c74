// Image primitives for AVX-512 (F, BW): bytes to 16-bit floats, which are bound by instructions on
// narrower vectors. float32 outputs are memory-bound with AVX2 already, so the rest is the AVX2
// code.
#include "kernels/image_avx2.h"
#include "kernels/image_blocks.h"

#define PINFEED_AVX512 __attribute__((target("avx512f,avx512bw,avx2,fma,f16c")))
#define PINFEED_AVX512_INLINE \
  __attribute__((target("avx512f,avx512bw,avx2,fma,f16c"), always_inline)) inline

namespace pinfeed::kernels {
namespace {

template <PixelType Type>
constexpr bool kHalfWidth = Type == PixelType::float16 || Type == PixelType::bfloat16;

template <bool Streaming>
PINFEED_AVX512_INLINE void store64(void* out, __m512i value) {
  if constexpr (Streaming) {
    _mm512_stream_si512(static_cast<__m512i*>(out), value);
  } else {
    _mm512_storeu_si512(out, value);
  }
}

// to_bfloat16_bits in the upper halves of 32-bit lanes. Not vcvtneps2bf16: it flushes subnormal
// numbers to zero.
PINFEED_AVX512_INLINE __m512i round_bfloat16_high(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  // Half a unit, or just less if the last remaining bit is even: ties go to even.
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i half =
      _mm512_mask_blend_epi32(odd, _mm512_set1_epi32(0x7fff), _mm512_set1_epi32(0x8000));
  return _mm512_add_epi32(bits, half);
}

// Two blocks, in order, as one cache line.
template <PixelType Type, bool Streaming>
PINFEED_AVX512_INLINE void store_line(void* out, __m512 first, __m512 second) {
  if constexpr (Type == PixelType::float16) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT;
    const __m512i low = _mm512_castsi256_si512(_mm512_cvtps_ph(first, kNearestEven));
    store64<Streaming>(out, _mm512_inserti64x4(low, _mm512_cvtps_ph(second, kNearestEven), 1));
  } else {
    // The upper 16 bits of each 32-bit lane, of `first`, then of `second`.
    alignas(64) std::int16_t upper_halves[32];
    for (int i = 0; i < 32; ++i) upper_halves[i] = static_cast<std::int16_t>(2 * i + 1);
    store64<Streaming>(
        out, _mm512_permutex2var_epi16(round_bfloat16_high(first), _mm512_load_si512(upper_halves),
                                       round_bfloat16_high(second)));
  }
}

template <PixelType Type>
PINFEED_AVX512_INLINE void store_block(void* out, __m512 values) {
  if constexpr (Type == PixelType::float16) {
    store32<false>(out, _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  } else {
    store32<false>(out, _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bfloat16_high(values), 16)));
  }
}

// Four pixels in each 128-bit lane, in its lowest 4 * Step bytes; or, of one channel, widened to 32
// bits. Backwards, the last ones first.
template <int Step, bool Backwards>
PINFEED_AVX512_INLINE __m512i load_pixels(const std::uint8_t* pixels) {
  if constexpr (Step == 1) {
    return _mm512_cvtepu8_epi32(load_plane<Backwards>(pixels));
  } else if constexpr (Step == 4) {
    const __m512i lanes = _mm512_loadu_si512(pixels);
    return Backwards ? _mm512_shuffle_i64x2(lanes, lanes, 0x1b) : lanes;
  } else {
    const __m512i spread =
        Backwards ? _mm512_setr_epi32(9, 10, 11, 11, 6, 7, 8, 8, 3, 4, 5, 5, 0, 1, 2, 2)
                  : _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
    // Two loads that end at the end of the block; one masked load took three times as long here.
    const __m256i head = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pixels));
    const __m256i tail = _mm256_castsi128_si256(load16(pixels + 32));
    return _mm512_permutexvar_epi32(spread,
                                    _mm512_inserti64x4(_mm512_castsi256_si512(head), tail, 1));
  }
}

// Picks channel `channel` of the pixels in each lane, widened to 32 bits.
template <int Step, bool Backwards>
PINFEED_AVX512_INLINE __m512i widening_shuffle(int channel) {
  alignas(16) std::int8_t index[16];
  for (int lane = 0; lane < 16; ++lane) {
    const int pixel = Backwards ? 3 - lane / 4 : lane / 4;
    index[lane] = static_cast<std::int8_t>(lane % 4 == 0 ? pixel * Step + channel : -1);
  }
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(index)));
}

// The channels of 16 pixels as float32, scaled.
template <int Step, int Channels, bool Backwards>
class Scaled {
 public:
  PINFEED_AVX512_INLINE Scaled(const float* scale, const float* bias) {
    for (int c = 0; c < Channels; ++c) {
      shuffle_[c] = widening_shuffle<Step, Backwards>(c);
      scale_[c] = _mm512_set1_ps(scale[c]);
      bias_[c] = _mm512_set1_ps(bias[c]);
    }
  }
  PINFEED_AVX512_INLINE __m512 channel(__m512i pixels, int c) const {
    const __m512i value = Step == 1 ? pixels : _mm512_shuffle_epi8(pixels, shuffle_[c]);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(value), scale_[c], bias_[c]);
  }

 private:
  __m512i shuffle_[Channels];
  __m512 scale_[Channels];
  __m512 bias_[Channels];
};

struct Avx512 : Avx2 {
  using Avx2::packed_blocks;
  using Avx2::planes_blocks;

  template <PixelType Type, int Step, int Channels, bool Streaming, bool Backwards>
  PINFEED_AVX512 static void planes_blocks(const std::uint8_t* pixels, std::size_t blocks,
                                           const float* scale, const float* bias, std::byte* out,
                                           std::ptrdiff_t plane_stride) {
    if constexpr (!kHalfWidth<Type>) {
      Avx2::planes_blocks<Type, Step, Channels, Streaming, Backwards>(pixels, blocks, scale, bias,
                                                                      out, plane_stride);
    } else {
      const Scaled<Step, Channels, Backwards> scaled(scale, bias);
      for (; blocks >= 2; blocks -= 2) {
        const __m512i first = load_pixels<Step, Backwards>(pixels);
        const __m512i second = load_pixels<Step, Backwards>(pixels + kNext<Step, Backwards>);
        for (int c = 0; c < Channels; ++c) {
          store_line<Type, Streaming>(out + c * plane_stride, scaled.channel(first, c),
                                      scaled.channel(second, c));
        }
        pixels += 2 * kNext<Step, Backwards>;
        out += 2 * kBlock * pixel_size(Type);
      }
      if (blocks > 0) {
        const __m512i last = load_pixels<Step, Backwards>(pixels);
        for (int c = 0; c < Channels; ++c) {
          store_block<Type>(out + c * plane_stride, scaled.channel(last, c));
        }
      }
    }
  }

  PINFEED_AVX512 static void pick_blocks(const std::uint8_t* from, std::ptrdiff_t from_step,
                                         std::size_t blocks, const std::uint8_t* table,
                                         std::uint8_t* to, std::ptrdiff_t to_step) {
    if (to_step % 4 == 0 && from_step == kPicked) {
      const __m512i each = _mm512_broadcast_i32x4(load16(table));
      const __m512i order =
          _mm512_load_si512(kJoinedWords<4>[to_step < 0][std::abs(to_step) / 4].data());
      const std::ptrdiff_t begin = to_step < 0 ? -std::ptrdiff_t{3 * kPicked} : 0;
      // Excess bytes are overwritten by the next blocks, as with AVX2. Masked stores took twice as
      // long.
      for (; blocks >= kPicked; blocks -= 4, from += 4 * from_step, to += 4 * to_step) {
        const __m512i picked = _mm512_shuffle_epi8(_mm512_loadu_si512(from), each);
        _mm512_storeu_si512(to + begin, _mm512_permutexvar_epi32(order, picked));
      }
    }
    Avx2::pick_blocks(from, from_step, blocks, table, to, to_step);
  }

  template <PixelType Type, bool Streaming>
  PINFEED_AVX512 static void packed_blocks(const std::uint8_t* values, std::size_t blocks,
                                           const PackedConstants& constants, std::size_t phase,
                                           std::byte* out) {
    if constexpr (!kHalfWidth<Type>) {
      Avx2::packed_blocks<Type, Streaming>(values, blocks, constants, phase, out);
    } else {
      const std::size_t period = constants.period, advance = kBlock % period;
      const auto next = [&]() PINFEED_AVX512 {
        const __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(load_pixels<1, false>(values)),
                                             _mm512_loadu_ps(constants.scale + phase),
                                             _mm512_loadu_ps(constants.bias + phase));
        phase += advance;
        if (phase >= period) phase -= period;
        values += kBlock;
        return value;
      };
      for (; blocks >= 2; blocks -= 2) {
        const __m512 first = next();
        store_line<Type, Streaming>(out, first, next());
        out += 2 * kBlock * pixel_size(Type);
      }
      if (blocks > 0) store_block<Type>(out, next());
    }
  }
};

}  // namespace

constexpr ImageRuns kImageRunsAvx512 = make_image_runs<Avx512>();

}  // namespace pinfeed::kernels
