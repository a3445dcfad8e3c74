// Rows of pixels resized with NEON.
#include <arm_neon.h>

#include <cstring>

#include "kernels/resize.h"

namespace pinfeed::kernels {
namespace {

void along_row(const Taps& taps, const std::uint8_t* row, std::size_t channels, std::uint8_t* out) {
  if (channels > 4) return kByteSums.along_row(taps, row, channels, out);
  const int32x4_t half = vdupq_n_s32(1 << (taps.precision() - 1));
  const int32x4_t shift = vdupq_n_s32(-static_cast<int>(taps.precision()));
  for (std::size_t x = 0; x < taps.outputs(); ++x) {
    const std::uint8_t* pixel = row + taps.first(x) * channels;
    int32x4_t sum = half;
    for (std::size_t t = 0; t < 2 * taps.pairs(); ++t, pixel += channels) {
      std::uint32_t four;  // includes the next pixels' bytes, if there are fewer channels
      std::memcpy(&four, pixel, sizeof(four));
      const uint16x8_t values = vmovl_u8(vcreate_u8(four));
      sum = vmlal_n_s16(sum, vreinterpret_s16_u16(vget_low_u16(values)), taps.weight(x, t));
    }
    const uint16x4_t words = vqmovun_s32(vshlq_s32(sum, shift));
    const uint8x8_t bytes = vqmovn_u16(vcombine_u16(words, words));
    const std::uint32_t result = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    std::memcpy(out, &result, sizeof(result));
    out += channels;
  }
}

void along_columns(const Taps& taps, std::size_t output, const std::uint8_t* const* rows,
                   std::size_t count, std::uint8_t* out) {
  const int32x4_t half = vdupq_n_s32(1 << (taps.precision() - 1));
  const int32x4_t shift = vdupq_n_s32(-static_cast<int>(taps.precision()));
  for (std::size_t i = 0; i < count; i += 16) {
    int32x4_t sums[4] = {half, half, half, half};
    for (std::size_t t = 0; t < 2 * taps.pairs(); ++t) {
      const std::int16_t weight = taps.weight(output, t);
      const uint8x16_t bytes = vld1q_u8(rows[t] + i);
      const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
      const int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
      sums[0] = vmlal_n_s16(sums[0], vget_low_s16(low), weight);
      sums[1] = vmlal_n_s16(sums[1], vget_high_s16(low), weight);
      sums[2] = vmlal_n_s16(sums[2], vget_low_s16(high), weight);
      sums[3] = vmlal_n_s16(sums[3], vget_high_s16(high), weight);
    }
    uint16x4_t words[4];
    for (int part = 0; part < 4; ++part) words[part] = vqmovun_s32(vshlq_s32(sums[part], shift));
    vst1q_u8(out + i, vcombine_u8(vqmovn_u16(vcombine_u16(words[0], words[1])),
                                  vqmovn_u16(vcombine_u16(words[2], words[3]))));
  }
}

const ResizeSums kByteSumsNeon{along_row, along_columns};

}  // namespace

const ResizeRuns kResizeNeon{&kImageRunsNeon, &kCastScalar, &kByteSumsNeon, &kFloatSums,
                             recolor,         saturate,     gray_sum};

}  // namespace pinfeed::kernels
