// Resizes rows of pixels with AVX2: bytes by sums of products of 16-bit numbers, two taps at a
// time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/image_avx2.h"
#include "kernels/resize.h"

namespace pinfeed::kernels {
namespace {

PINFEED_AVX2_INLINE __m256i load32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Indices of a byte shuffle, the same for both lanes.
struct alignas(32) Shuffle {
  std::int8_t index[32];

  PINFEED_AVX2_INLINE __m256i load() const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
  }
};

// From pixels of `channels` bytes in each lane: the channels of pixels `first` and `first` + 1,
// widened to 16 bits and interleaved.
constexpr Shuffle pairing_shuffle(std::size_t channels, std::size_t first) {
  Shuffle shuffle{};
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t channel = i % 16 / 4, pixel = first + i % 4 / 2;
    const bool used = i % 2 == 0 && channel < channels;
    shuffle.index[i] = static_cast<std::int8_t>(used ? pixel * channels + channel : -1);
  }
  return shuffle;
}

// The first `channels` bytes of four pixels of four bytes in each lane, packed.
constexpr Shuffle packing_shuffle(std::size_t channels) {
  Shuffle shuffle{};
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t byte = i % 16, pixel = byte / channels;
    shuffle.index[i] = static_cast<std::int8_t>(pixel < 4 ? pixel * 4 + byte % channels : -1);
  }
  return shuffle;
}

struct RowShuffles {
  Shuffle pairing[2];
  Shuffle packing;
};

constexpr RowShuffles row_shuffles(std::size_t channels) {
  return {{pairing_shuffle(channels, 0), pairing_shuffle(channels, 2)}, packing_shuffle(channels)};
}

// For 1 to 4 channels. Computed for each row, with divisions, they took 70 of the 330 µs of a crop
// of 500 by 375 on an Intel CPU.
constexpr RowShuffles kRowShuffles[] = {row_shuffles(1), row_shuffles(2), row_shuffles(3),
                                        row_shuffles(4)};

// The channels of two outputs, one in each lane, whose taps begin at `low` and `high`. A constant
// number of pairs is a type.
template <class Pairs>
PINFEED_AVX2_INLINE __m256i sum_taps(const std::int16_t* weights, Pairs pairs,
                                     const std::uint8_t* low, const std::uint8_t* high,
                                     std::size_t channels, const __m256i (&pairing)[2],
                                     __m256i half, __m128i precision) {
  __m256i sum = half;
  for (std::size_t pair = 0; pair < pairs; pair += 2) {
    const __m256i pixels =
        _mm256_set_m128i(load16(high + 2 * pair * channels), load16(low + 2 * pair * channels));
    for (std::size_t i = 0; i < 2 && pair + i < pairs; ++i) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, pairing[i]),
                                                    load32(weights + (pair + i) * 16)));
    }
  }
  return _mm256_sra_epi32(sum, precision);
}

template <class Pairs>
PINFEED_AVX2 void along_row_of(const Taps& taps, Pairs pairs, const std::uint8_t* row,
                               std::size_t channels, std::uint8_t* out) {
  const RowShuffles& shuffles = kRowShuffles[channels - 1];
  const __m256i pairing[2] = {shuffles.pairing[0].load(), shuffles.pairing[1].load()};
  const __m256i packing = shuffles.packing.load();
  const __m256i half = _mm256_set1_epi32(1 << (taps.precision() - 1));
  const __m128i precision = _mm_cvtsi32_si128(static_cast<int>(taps.precision()));
  // In variables, because stores of bytes might change the members of taps.
  const std::size_t outputs = taps.outputs();
  if (outputs == 0) return;
  const std::size_t* firsts = taps.firsts();
  const std::int16_t* weights = taps.pair(0, 0);
  for (std::size_t x = 0; x < outputs; x += Taps::kOutputs) {
    __m256i sums[4];
    for (__m256i& sum : sums) {
      sum = sum_taps(weights, pairs, row + firsts[0] * channels, row + firsts[1] * channels,
                     channels, pairing, half, precision);
      firsts += 2;
      weights += pairs * 16;
    }
    // Even outputs in the low lane, odd ones in the high lane.
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                              _mm256_packs_epi32(sums[2], sums[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i packed = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, order), packing);
    store16<false>(out, _mm256_castsi256_si128(packed));
    store16<false>(out + 4 * channels, _mm256_extracti128_si256(packed, 1));
    out += Taps::kOutputs * channels;
  }
}

PINFEED_AVX2 void along_row(const Taps& taps, const std::uint8_t* row, std::size_t channels,
                            std::uint8_t* out) {
  if (channels > 4) return kByteSums.along_row(taps, row, channels, out);
  switch (taps.pairs()) {
    case 1:
      return along_row_of(taps, std::integral_constant<std::size_t, 1>{}, row, channels, out);
    case 2:
      return along_row_of(taps, std::integral_constant<std::size_t, 2>{}, row, channels, out);
    case 3:
      return along_row_of(taps, std::integral_constant<std::size_t, 3>{}, row, channels, out);
    default:
      return along_row_of(taps, taps.pairs(), row, channels, out);
  }
}

PINFEED_AVX2 void along_columns(const Taps& taps, std::size_t output,
                                const std::uint8_t* const* rows, std::size_t count,
                                std::uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << (taps.precision() - 1));
  const __m128i precision = _mm_cvtsi32_si128(static_cast<int>(taps.precision()));
  for (std::size_t i = 0; i < count; i += 32) {
    __m256i sums[4] = {half, half, half, half};
    for (std::size_t pair = 0; pair < taps.pairs(); ++pair) {
      const __m256i weights = _mm256_broadcastsi128_si256(load16(taps.pair(output, pair)));
      const __m256i first = load32(rows[2 * pair] + i), second = load32(rows[2 * pair + 1] + i);
      const __m256i low = _mm256_unpacklo_epi8(first, second);
      const __m256i high = _mm256_unpackhi_epi8(first, second);
      const auto add = [&](__m256i& sum, __m256i values) PINFEED_AVX2 {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(values, weights));
      };
      add(sums[0], _mm256_unpacklo_epi8(low, zero));
      add(sums[1], _mm256_unpackhi_epi8(low, zero));
      add(sums[2], _mm256_unpacklo_epi8(high, zero));
      add(sums[3], _mm256_unpackhi_epi8(high, zero));
    }
    for (__m256i& sum : sums) sum = _mm256_sra_epi32(sum, precision);
    store32<false>(out + i, _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                                _mm256_packs_epi32(sums[2], sums[3])));
  }
}

// Two outputs at a time, one in each lane. A pixel with weight 0 adds 0, even if it is NaN.
PINFEED_AVX2 void floats_along_row(const Taps& taps, const std::uint8_t* row, std::size_t channels,
                                   std::uint8_t* out) {
  if (channels > 4) return kFloatSums.along_row(taps, row, channels, out);
  const auto* const from = reinterpret_cast<const float*>(row);
  auto* to = reinterpret_cast<float*>(out);
  const __m256 zero = _mm256_setzero_ps();
  for (std::size_t x = 0; x < taps.outputs(); x += 2, to += 2 * channels) {
    const float* low = from + taps.first(x) * channels;
    const float* high = from + taps.first(x + 1) * channels;
    const float* weights = taps.floats(x, 0);
    __m256 sum = zero;
    for (std::size_t t = 0; t < taps.max_taps();
         ++t, low += channels, high += channels, weights += 8) {
      const __m256 weight = _mm256_loadu_ps(weights);
      const __m256 product = _mm256_mul_ps(_mm256_loadu2_m128(high, low), weight);
      const __m256 is_used = _mm256_cmp_ps(weight, zero, _CMP_NEQ_OQ);
      sum = _mm256_add_ps(sum, _mm256_and_ps(product, is_used));
    }
    _mm256_storeu2_m128(to + channels, to, sum);
  }
}

PINFEED_AVX2 void floats_along_columns(const Taps& taps, std::size_t output,
                                       const std::uint8_t* const* rows, std::size_t bytes,
                                       std::uint8_t* out) {
  const std::size_t count = taps.max_taps();
  for (std::size_t i = 0; i < bytes; i += 128) {
    const float* weights = taps.floats(output, 0);
    __m256 sums[4] = {};
    for (std::size_t t = 0; t < count; ++t, weights += 8) {
      if (*weights == 0) continue;
      const auto* const from = reinterpret_cast<const float*>(rows[t] + i);
      const __m256 weight = _mm256_broadcast_ss(weights);
      for (std::size_t k = 0; k < 4; ++k) {
        const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(from + 8 * k), weight);
        sums[k] = _mm256_add_ps(sums[k], product);
      }
    }
    auto* const to = reinterpret_cast<float*>(out + i);
    for (std::size_t k = 0; k < 4; ++k) _mm256_storeu_ps(to + 8 * k, sums[k]);
  }
}

// The low half of a byte indexes each sixteenth of the table, and the bits of its high half choose
// among the results.
PINFEED_AVX2 void recolor_avx2(const ColorTable& table, std::uint8_t* values, std::size_t count) {
  __m256i parts[16];
  for (std::size_t k = 0; k < 16; ++k) {
    parts[k] = _mm256_broadcastsi128_si256(load16(&table[16 * k]));
  }
  for (std::size_t i = 0; i < count; i += 32) {
    const __m256i bytes = load32(values + i);
    const __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    __m256i found[16];
    for (std::size_t k = 0; k < 16; ++k) found[k] = _mm256_shuffle_epi8(parts[k], low);
    for (int bit = 0; bit < 4; ++bit) {
      const __m256i upper = _mm256_slli_epi16(bytes, 3 - bit);
      for (int k = 0; k < 8 >> bit; ++k) {
        found[k] = _mm256_blendv_epi8(found[2 * k], found[2 * k + 1], upper);
      }
    }
    store32<false>(values + i, found[0]);
  }
}

PINFEED_AVX2_INLINE __m256i eight_pixels(const std::uint8_t* pixels) {
  return _mm256_set_m128i(load16(pixels + 12), load16(pixels));
}

// One channel of pixels as floats; `bytes` has the positions of its bytes.
PINFEED_AVX2_INLINE __m256 floats_of(__m256i pixels, __m256i bytes) {
  return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(pixels, bytes));
}

// fma(gray, rest, values * factor), to whole numbers from 0 to 255.
PINFEED_AVX2_INLINE __m256i blended(__m256 gray, __m256 rest, __m256 values, __m256 factor) {
  const __m256 sum = _mm256_fmadd_ps(gray, rest, _mm256_mul_ps(values, factor));
  const __m256 positive = _mm256_max_ps(sum, _mm256_setzero_ps());
  return _mm256_cvttps_epi32(_mm256_min_ps(positive, _mm256_set1_ps(255)));
}

// Eight pixels at a time: four in each half of a register, whose last bytes belong to the next
// pixels and stay unchanged.
PINFEED_AVX2 void saturate_avx2(const Saturation& saturation, std::uint8_t* pixels,
                                std::size_t count) {
  const __m256i red = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1));
  const __m256i green = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(1, -1, -1, -1, 4, -1, -1, -1, 7, -1, -1, -1, 10, -1, -1, -1));
  const __m256i blue = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(2, -1, -1, -1, 5, -1, -1, -1, 8, -1, -1, -1, 11, -1, -1, -1));
  const __m256i packed = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const __m256 factor = _mm256_set1_ps(saturation.factor);
  const __m256 rest = _mm256_set1_ps(saturation.rest);
  // Loaded before the pixels in front of them are stored, because their last store overlaps them.
  __m256i next = eight_pixels(pixels);
  for (std::uint8_t* const end = pixels + 3 * count; pixels < end; pixels += 24) {
    const __m256i bytes = next;
    next = eight_pixels(pixels + 24);
    const __m256 reds = floats_of(bytes, red), greens = floats_of(bytes, green);
    const __m256 blues = floats_of(bytes, blue);
    __m256 gray = _mm256_mul_ps(reds, _mm256_set1_ps(0.2989f));
    gray = _mm256_fmadd_ps(greens, _mm256_set1_ps(0.587f), gray);
    gray = _mm256_fmadd_ps(blues, _mm256_set1_ps(0.114f), gray);
    gray = _mm256_cvtepi32_ps(_mm256_cvttps_epi32(gray));
    const __m256i firsts = blended(gray, rest, reds, factor);
    const __m256i seconds = _mm256_slli_epi32(blended(gray, rest, greens, factor), 8);
    const __m256i thirds = _mm256_slli_epi32(blended(gray, rest, blues, factor), 16);
    const __m256i all =
        _mm256_shuffle_epi8(_mm256_or_si256(firsts, _mm256_or_si256(seconds, thirds)), packed);
    const __m256i found = _mm256_blend_epi32(all, bytes, 0b10001000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels), _mm256_castsi256_si128(found));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels + 12), _mm256_extracti128_si256(found, 1));
  }
}

// The compiler vectorizes it, with 32-bit sums.
PINFEED_AVX2 std::uint64_t gray_sum_avx2(const std::uint8_t* pixels, std::size_t count) {
  constexpr std::size_t kMax = std::size_t{1} << 23;  // pixels whose sum fits 32 bits
  std::uint64_t sum = 0;
  for (std::size_t begin = 0; begin < count; begin += kMax) {
    const std::uint8_t* const first = pixels + 3 * begin;
    std::int32_t part = 0;
    for (std::size_t i = 0; i < std::min(kMax, count - begin); ++i) {
      const float red = static_cast<float>(first[3 * i]) * 0.2989f;
      const float yellow = __builtin_fmaf(static_cast<float>(first[3 * i + 1]), 0.587f, red);
      part += static_cast<std::int32_t>(
          __builtin_fmaf(static_cast<float>(first[3 * i + 2]), 0.114f, yellow));
    }
    sum += static_cast<std::uint64_t>(part);
  }
  return sum;
}

const ResizeSums kByteSumsAvx2{along_row, along_columns};
const ResizeSums kFloatSumsAvx2{floats_along_row, floats_along_columns};

}  // namespace

const ResizeRuns kResizeAvx2{&kImageRunsAvx2, &kCastAvx2,    &kByteSumsAvx2, &kFloatSumsAvx2,
                             recolor_avx2,    saturate_avx2, gray_sum_avx2};
const ResizeRuns kResizeAvx512{&kImageRunsAvx512, &kCastAvx2,    &kByteSumsAvx2, &kFloatSumsAvx2,
                               recolor_avx2,      saturate_avx2, gray_sum_avx2};

}  // namespace pinfeed::kernels
