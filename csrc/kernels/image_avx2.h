// Blocks of 16 image values for AVX2 + FMA + F16C. The AVX-512 file includes this file and replaces
// some functions.
//
// The including files are compiled for the baseline CPU; each function sets its own target, so that
// no inline library code for a newer CPU can leak into the portable path.
#pragma once

#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "kernels/image_blocks.h"
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

// Writes a whole block by Table: out[to] = its bytes from all in[from].
template <auto& Table, bool Streaming, int Step, int... To>
PINFEED_AVX2_INLINE void store_shuffled(const __m128i (&in)[Step], std::uint8_t* out,
                                        std::ptrdiff_t out_stride,
                                        std::integer_sequence<int, To...>) {
  constexpr std::make_integer_sequence<int, Step> all;
  (store16<Streaming>(out + To * out_stride, shuffled<Table, To>(in, all)), ...);
}

// Splits blocks of 16 bytes per plane, of pixels of Step items, into the first Planes planes.
template <int Item, int Step, int Planes, bool Streaming, bool Backwards>
PINFEED_AVX2 void deinterleave_blocks(const std::byte* pixels, std::size_t blocks,
                                      std::byte* planes, std::ptrdiff_t plane_stride) {
  for (std::size_t block = 0; block < blocks; ++block) {
    __m128i in[Step];
    for (int from = 0; from < Step; ++from) in[from] = load16(pixels + 16 * from);
    store_shuffled<kDeinterleave<Item, Step, Backwards>, Streaming>(
        in, reinterpret_cast<std::uint8_t*>(planes), plane_stride,
        std::make_integer_sequence<int, Planes>{});
    pixels += kNext<Step, Backwards>;
    planes += 16;
  }
}

// Eight pixels in two halves of four, chosen by `part`. bfloat16 is packed from two vectors within
// 128-bit lanes, so it uses pixels 0-3 | 8-11 and 4-7 | 12-15, other types 0-7 and 8-15. Backwards,
// these are counted from the last.
template <PixelType Type, bool Backwards>
constexpr int half_of(int part, int half) {
  const int quarter = Type == PixelType::bfloat16 ? 2 * half + part : 2 * part + half;
  return Backwards ? 3 - quarter : quarter;
}

// The load address for pixels 4 * quarter .. 4 * quarter + 3: 16 bytes that contain them and don't
// extend past pixel 15.
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

template <bool Backwards>
PINFEED_AVX2_INLINE __m128i load_plane(const std::uint8_t* pixels) {
  const __m128i bytes = load16(pixels);
  if constexpr (!Backwards) return bytes;
  return _mm_shuffle_epi8(bytes, load16(kReverse.data()));
}

// The pixels of a half, in each lane; or, of one channel, widened to 32 bits.
template <PixelType Type, int Step, bool Backwards>
PINFEED_AVX2_INLINE __m256i load_pixels(const std::uint8_t* pixels, int part) {
  if constexpr (Step == 1) {
    __m128i bytes = load_plane<Backwards>(pixels);
    if constexpr (Type == PixelType::bfloat16) bytes = _mm_shuffle_epi32(bytes, 0xd8);
    return _mm256_cvtepu8_epi32(part == 0 ? bytes : _mm_srli_si128(bytes, 8));
  } else {
    return _mm256_set_m128i(load16(pixels + load_offset<Step>(half_of<Type, Backwards>(part, 1))),
                            load16(pixels + load_offset<Step>(half_of<Type, Backwards>(part, 0))));
  }
}

// A channel of load_pixels, chosen by widening_shuffle.
template <int Step>
PINFEED_AVX2_INLINE __m256 channel_of(__m256i pixels, __m256i shuffle) {
  return _mm256_cvtepi32_ps(Step == 1 ? pixels : _mm256_shuffle_epi8(pixels, shuffle));
}

// Sixteen values in order.
struct Floats {
  __m256 low;
  __m256 high;
};

PINFEED_AVX2_INLINE __m256 to_float(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

PINFEED_AVX2_INLINE Floats load_floats(const std::uint8_t* values) {
  const __m128i bytes = load16(values);
  return {to_float(bytes), to_float(_mm_srli_si128(bytes, 8))};
}

PINFEED_AVX2_INLINE Floats load_floats(const float* values) {
  return {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
}

// For eight pixels of three values: the lanes of a vector that have a channel.
constexpr int channel_lanes(int vector, int channel) {
  int lanes = 0;
  for (int lane = 0; lane < 8; ++lane) lanes |= (8 * vector + lane) % 3 == channel ? 1 << lane : 0;
  return lanes;
}

// Channel `Channel` of eight pixels of float32. Backwards: the last one first.
template <int Step, int Channel, bool Backwards>
PINFEED_AVX2_INLINE __m256 load_eight(const float* pixels) {
  const auto ordered = [](__m256 values, auto place_of) PINFEED_AVX2 {
    alignas(32) std::int32_t places[8];
    for (int pixel = 0; pixel < 8; ++pixel) {
      places[Backwards ? 7 - pixel : pixel] = place_of(pixel);
    }
    return _mm256_permutevar8x32_ps(values,
                                    _mm256_load_si256(reinterpret_cast<const __m256i*>(places)));
  };
  const __m256 first = _mm256_loadu_ps(pixels);
  if constexpr (Step == 1) {
    return Backwards ? ordered(first, [](int pixel) { return pixel; }) : first;
  } else if constexpr (Step == 3) {
    // No two pixels share a lane.
    constexpr int in_second = channel_lanes(1, Channel), in_third = channel_lanes(2, Channel);
    const __m256 mixed =
        _mm256_blend_ps(_mm256_blend_ps(first, _mm256_loadu_ps(pixels + 8), in_second),
                        _mm256_loadu_ps(pixels + 16), in_third);
    return ordered(mixed, [](int pixel) { return (3 * pixel + Channel) % 8; });
  } else {
    // Pixels 0, 2, 4, 6 go to the lower lane, the others to the upper one.
    const __m256 second = _mm256_loadu_ps(pixels + 8), third = _mm256_loadu_ps(pixels + 16);
    const __m256 fourth = _mm256_loadu_ps(pixels + 24);
    const __m256 low =
        Channel < 2 ? _mm256_unpacklo_ps(first, second) : _mm256_unpackhi_ps(first, second);
    const __m256 high =
        Channel < 2 ? _mm256_unpacklo_ps(third, fourth) : _mm256_unpackhi_ps(third, fourth);
    const __m256 mixed = _mm256_shuffle_ps(low, high, Channel % 2 == 0 ? 0x44 : 0xee);
    return ordered(mixed, [](int pixel) { return pixel / 2 + pixel % 2 * 4; });
  }
}

template <int Step, int Channel, bool Backwards>
PINFEED_AVX2_INLINE Floats load_channel(const float* pixels) {
  const __m256 first = load_eight<Step, Channel, Backwards>(pixels);
  const __m256 second = load_eight<Step, Channel, Backwards>(pixels + 8 * Step);
  return Backwards ? Floats{second, first} : Floats{first, second};
}

// to_bfloat16_bits in 32-bit lanes, for numbers and infinities: a byte never becomes NaN, because
// constants are finite. A float may be NaN, quiet after the multiply-add: its upper half stays.
template <class Value>
PINFEED_AVX2_INLINE __m256i round_bfloat16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
  if constexpr (std::is_same_v<Value, float>) {
    half = _mm256_and_si256(half, _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_ORD_Q)));
  }
  return _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
}

// Sixteen float32 values, ordered as half_of says, stored as Type.
template <PixelType Type, bool Streaming, class Value = std::uint8_t>
PINFEED_AVX2_INLINE void store_block(void* out, __m256 part0, __m256 part1) {
  if constexpr (Type == PixelType::float32) {
    store32<Streaming>(out, _mm256_castps_si256(part0));
    store32<Streaming>(static_cast<float*>(out) + 8, _mm256_castps_si256(part1));
  } else if constexpr (Type == PixelType::float16) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT;
    store32<Streaming>(out, _mm256_set_m128i(_mm256_cvtps_ph(part1, kNearestEven),
                                             _mm256_cvtps_ph(part0, kNearestEven)));
  } else {
    store32<Streaming>(
        out, _mm256_packus_epi32(round_bfloat16<Value>(part0), round_bfloat16<Value>(part1)));
  }
}

// The same for values in order.
template <PixelType Type, bool Streaming, class Value>
PINFEED_AVX2_INLINE void store_in_order(void* out, Floats values) {
  if constexpr (Type == PixelType::bfloat16) {
    const __m256i packed =
        _mm256_packus_epi32(round_bfloat16<Value>(values.low), round_bfloat16<Value>(values.high));
    store32<Streaming>(out, _mm256_permute4x64_epi64(packed, 0xd8));
  } else {
    store_block<Type, Streaming>(out, values.low, values.high);
  }
}

struct Avx2 {
  static constexpr const CastTable* casts = &kCastAvx2;
  static constexpr const PermuteRuns* permute = &kPermuteAvx2;

  // For float32: one channel after the other.
  template <PixelType Type, int Step, int Channels, bool Streaming, bool Backwards>
  PINFEED_AVX2 static void planes_blocks(const float* pixels, std::size_t blocks,
                                         const float* scale, const float* bias, std::byte* out,
                                         std::ptrdiff_t plane_stride) {
    const auto store = [&](int c, Floats values) PINFEED_AVX2 {
      const __m256 scales = _mm256_set1_ps(scale[c]), biases = _mm256_set1_ps(bias[c]);
      store_in_order<Type, Streaming, float>(out + c * plane_stride,
                                             {_mm256_fmadd_ps(values.low, scales, biases),
                                              _mm256_fmadd_ps(values.high, scales, biases)});
    };
    for (std::size_t block = 0; block < blocks; ++block) {
      store(0, load_channel<Step, 0, Backwards>(pixels));
      if constexpr (Step > 1) {
        store(1, load_channel<Step, 1, Backwards>(pixels));
        store(2, load_channel<Step, 2, Backwards>(pixels));
      }
      if constexpr (Channels == 4) store(3, load_channel<Step, 3, Backwards>(pixels));
      pixels += kNext<Step, Backwards>;
      out += kBlock * pixel_size(Type);
    }
  }

  template <PixelType Type, int Step, int Channels, bool Streaming, bool Backwards>
  PINFEED_AVX2 static void planes_blocks(const std::uint8_t* pixels, std::size_t blocks,
                                         const float* scale, const float* bias, std::byte* out,
                                         std::ptrdiff_t plane_stride) {
    if constexpr (Type == PixelType::uint8) {
      deinterleave_blocks<1, Step, Channels, Streaming, Backwards>(
          reinterpret_cast<const std::byte*>(pixels), blocks, out, plane_stride);
    } else {
      __m256i shuffle[2][Channels];
      __m256 scales[Channels], biases[Channels];
      for (int c = 0; c < Channels; ++c) {
        scales[c] = _mm256_set1_ps(scale[c]);
        biases[c] = _mm256_set1_ps(bias[c]);
        for (int part = 0; part < 2; ++part) {
          shuffle[part][c] = widening_shuffle<Type, Step, Backwards>(part, c);
        }
      }
      for (std::size_t block = 0; block < blocks; ++block) {
        const __m256i part0 = load_pixels<Type, Step, Backwards>(pixels, 0);
        const __m256i part1 = load_pixels<Type, Step, Backwards>(pixels, 1);
        for (int c = 0; c < Channels; ++c) {
          store_block<Type, Streaming>(
              out + c * plane_stride,
              _mm256_fmadd_ps(channel_of<Step>(part0, shuffle[0][c]), scales[c], biases[c]),
              _mm256_fmadd_ps(channel_of<Step>(part1, shuffle[1][c]), scales[c], biases[c]));
        }
        pixels += kNext<Step, Backwards>;
        out += kBlock * pixel_size(Type);
      }
    }
  }

  template <PixelType Type, bool Streaming, class Value>
  PINFEED_AVX2 static void packed_blocks(const Value* values, std::size_t blocks,
                                         const PackedConstants& constants, std::size_t phase,
                                         std::byte* out) {
    const std::size_t period = constants.period, advance = kBlock % period;
    for (std::size_t block = 0; block < blocks; ++block) {
      const float* scale = constants.scale + phase;
      const float* bias = constants.bias + phase;
      const auto [low, high] = load_floats(values);
      store_in_order<Type, Streaming, Value>(
          out, {_mm256_fmadd_ps(low, _mm256_loadu_ps(scale), _mm256_loadu_ps(bias)),
                _mm256_fmadd_ps(high, _mm256_loadu_ps(scale + 8), _mm256_loadu_ps(bias + 8))});
      phase += advance;
      if (phase >= period) phase -= period;
      values += kBlock;
      out += kBlock * pixel_size(Type);
    }
  }

  PINFEED_AVX2 static void copy_rows(const std::uint8_t* from, std::ptrdiff_t from_stride,
                                     std::size_t bytes, std::size_t rows, std::uint8_t* to,
                                     std::ptrdiff_t to_stride) {
    // Long rows come from memory, where 32 bytes at a time were slower, because half of them span
    // two lines.
    constexpr std::size_t kVector = 32, kLong = 256;
    if (bytes < kVector || bytes > kLong)
      return copy_by<16>(from, from_stride, bytes, rows, to, to_stride);
    const std::size_t last = bytes - kVector;
    const auto copy = [&](std::size_t x) PINFEED_AVX2 {
      store32<false>(to + x, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + x)));
    };
    for (std::size_t y = 0; y < rows; ++y, from += from_stride, to += to_stride) {
      for (std::size_t x = 0; x < last; x += kVector) copy(x);
      copy(last);
    }
  }

  PINFEED_AVX2 static void pick_blocks(const std::uint8_t* from, std::ptrdiff_t from_step,
                                       std::size_t blocks, const std::uint8_t* table,
                                       std::uint8_t* to, std::ptrdiff_t to_step) {
    const __m128i shuffle = load16(table);
    if (to_step % 4 == 0 && blocks > kPicked / 4) {
      const __m256i both = _mm256_broadcastsi128_si256(shuffle);
      const __m256i order = _mm256_load_si256(reinterpret_cast<const __m256i*>(
          kJoinedWords<2>[to_step < 0][std::abs(to_step) / 4].data()));
      const std::ptrdiff_t begin = to_step < 0 ? -std::ptrdiff_t{kPicked} : 0;
      // Bytes stored beyond two blocks are overwritten by the next blocks.
      for (; blocks > kPicked / 4; blocks -= 2, from += 2 * from_step, to += 2 * to_step) {
        const __m256i in = _mm256_set_m128i(load16(from + from_step), load16(from));
        store32<false>(to + begin,
                       _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(in, both), order));
      }
    }
    for (; blocks > 0; --blocks, from += from_step, to += to_step) {
      store16<false>(to, _mm_shuffle_epi8(load16(from), shuffle));
    }
  }
};

}  // namespace
}  // namespace pinfeed::kernels
