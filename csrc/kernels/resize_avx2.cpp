// Rows of pixels resized with AVX2: sums of products of 16-bit numbers, two taps at a time.
#include <cstring>

#include "kernels/image_avx2.h"
#include "kernels/resize.h"

namespace pinfeed::kernels {
namespace {

PINFEED_AVX2_INLINE __m256i load32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Of four pixels of `channels` bytes in each lane: in the low lane each channel of the first two,
// widened to 16 bits, next to each other, in the high lane of the last two.
PINFEED_AVX2_INLINE __m256i pairing_shuffle(std::size_t channels) {
  alignas(32) std::int8_t index[32];
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t channel = i % 16 / 4, pixel = i / 16 * 2 + i % 4 / 2;
    const bool used = i % 2 == 0 && channel < channels;
    index[i] = static_cast<std::int8_t>(used ? pixel * channels + channel : -1);
  }
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
}

// Of four pixels of four bytes in each lane their first `channels`, next to each other.
PINFEED_AVX2_INLINE __m256i packing_shuffle(std::size_t channels) {
  alignas(32) std::int8_t index[32];
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t byte = i % 16;
    index[i] = static_cast<std::int8_t>(
        byte < 4 * channels ? byte / channels * 4 + byte % channels : -1);
  }
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
}

// What the taps of one output sum up to: each channel in both lanes, in two parts.
PINFEED_AVX2_INLINE __m256i sum_taps(const std::uint8_t* pixels, const std::int16_t* weights,
                                     std::size_t stride, std::size_t channels, __m256i pairing) {
  const __m256i spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  __m256i sum = _mm256_setzero_si256();
  for (std::size_t t = 0; t < stride; t += Taps::kWeights) {
    const __m256i four = _mm256_broadcastsi128_si256(load16(pixels + t * channels));
    const __m128i factors = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights + t));
    sum = _mm256_add_epi32(
        sum, _mm256_madd_epi16(_mm256_shuffle_epi8(four, pairing),
                               _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(factors), spread)));
  }
  return sum;
}

PINFEED_AVX2 void along_row(const Taps& taps, const std::uint8_t* row, std::size_t channels,
                            std::uint8_t* out) {
  if (channels > 4) return kResizeScalar.along_row(taps, row, channels, out);
  const __m256i pairing = pairing_shuffle(channels), packing = packing_shuffle(channels);
  const __m256i half = _mm256_set1_epi32(1 << (taps.precision() - 1));
  const __m128i precision = _mm_cvtsi32_si128(static_cast<int>(taps.precision()));
  const std::size_t stride = taps.stride();
  for (std::size_t x = 0; x < taps.outputs(); x += Taps::kOutputs) {
    const auto sum = [&](std::size_t i) PINFEED_AVX2 {
      return sum_taps(row + taps.first(x + i) * channels, taps.weights(x + i), stride, channels,
                      pairing);
    };
    // Output i in the low lane, output i + 4 in the high one.
    const auto outputs = [&](std::size_t i) PINFEED_AVX2 {
      const __m256i low = sum(i), high = sum(i + 4);
      const __m256i whole = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                             _mm256_permute2x128_si256(low, high, 0x31));
      return _mm256_sra_epi32(_mm256_add_epi32(whole, half), precision);
    };
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(outputs(0), outputs(1)),
                                              _mm256_packs_epi32(outputs(2), outputs(3)));
    const __m256i packed = _mm256_shuffle_epi8(bytes, packing);
    store16<false>(out, _mm256_castsi256_si128(packed));
    store16<false>(out + 4 * channels, _mm256_extracti128_si256(packed, 1));
    out += Taps::kOutputs * channels;
  }
}

PINFEED_AVX2 void along_columns(const std::uint8_t* const* rows, const std::int16_t* weights,
                                std::size_t taps, unsigned precision, std::size_t count,
                                std::uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << (precision - 1));
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(precision));
  for (std::size_t i = 0; i < count; i += 32) {
    __m256i sums[4] = {half, half, half, half};
    for (std::size_t t = 0; t < taps; t += 2) {
      std::int32_t pair;
      std::memcpy(&pair, weights + t, sizeof(pair));
      const __m256i factors = _mm256_set1_epi32(pair);
      const __m256i first = load32(rows[t] + i), second = load32(rows[t + 1] + i);
      const __m256i low = _mm256_unpacklo_epi8(first, second);
      const __m256i high = _mm256_unpackhi_epi8(first, second);
      const auto add = [&](__m256i& sum, __m256i values) PINFEED_AVX2 {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(values, factors));
      };
      add(sums[0], _mm256_unpacklo_epi8(low, zero));
      add(sums[1], _mm256_unpackhi_epi8(low, zero));
      add(sums[2], _mm256_unpacklo_epi8(high, zero));
      add(sums[3], _mm256_unpackhi_epi8(high, zero));
    }
    for (__m256i& sum : sums) sum = _mm256_sra_epi32(sum, shift);
    store32<false>(out + i, _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                                _mm256_packs_epi32(sums[2], sums[3])));
  }
}

}  // namespace

const ResizeRuns kResizeAvx2{normalize_images_avx2, along_row, along_columns};
const ResizeRuns kResizeAvx512{normalize_images_avx512, along_row, along_columns};

}  // namespace pinfeed::kernels
