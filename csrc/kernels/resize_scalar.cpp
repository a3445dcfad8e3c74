// The reference implementation: the definition in resize.h, kept plain on purpose.
#include <algorithm>

#include "kernels/resize.h"

namespace pinfeed::kernels {
namespace {

std::uint8_t to_byte(std::int32_t sum, unsigned precision) {
  return static_cast<std::uint8_t>(std::clamp(sum >> precision, 0, 255));
}

void along_row(const Taps& taps, const std::uint8_t* row, std::size_t channels, std::uint8_t* out) {
  for (std::size_t x = 0; x < taps.outputs(); ++x) {
    const std::uint8_t* const first = row + taps.first(x) * channels;
    for (std::size_t c = 0; c < channels; ++c) {
      std::int32_t sum = 1 << (taps.precision() - 1);
      for (std::size_t t = 0; t < 2 * taps.pairs(); ++t) {
        sum += first[t * channels + c] * taps.weight(x, t);
      }
      *out++ = to_byte(sum, taps.precision());
    }
  }
}

void along_columns(const Taps& taps, std::size_t output, const std::uint8_t* const* rows,
                   std::size_t count, std::uint8_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t sum = 1 << (taps.precision() - 1);
    for (std::size_t t = 0; t < 2 * taps.pairs(); ++t) sum += rows[t][i] * taps.weight(output, t);
    out[i] = to_byte(sum, taps.precision());
  }
}

// Four channels at a time, so that the compiler vectorizes it. The next pixel overwrites the bytes
// beyond the last channel.
void floats_along_row(const Taps& taps, const std::uint8_t* row, std::size_t channels,
                      std::uint8_t* out) {
  const auto* const from = reinterpret_cast<const float*>(row);
  auto* __restrict to = reinterpret_cast<float*>(out);
  for (std::size_t x = 0; x < taps.outputs(); ++x, to += channels) {
    for (std::size_t begin = 0; begin < channels; begin += 4) {
      const float* pixel = from + taps.first(x) * channels + begin;
      float sums[4] = {};
      for (std::size_t t = 0; t < taps.max_taps(); ++t, pixel += channels) {
        const float* const weights = taps.floats(x, t);
        if (*weights == 0) continue;
        for (std::size_t c = 0; c < 4; ++c) sums[c] += pixel[c] * weights[c];
      }
      std::copy_n(sums, 4, to + begin);
    }
  }
}

void floats_along_columns(const Taps& taps, std::size_t output, const std::uint8_t* const* rows,
                          std::size_t bytes, std::uint8_t* out) {
  auto* __restrict to = reinterpret_cast<float*>(out);
  std::fill_n(to, bytes / sizeof(float), 0.0F);
  for (std::size_t t = 0; t < taps.max_taps(); ++t) {
    const auto* const row = reinterpret_cast<const float*>(rows[t]);
    const float weight = *taps.floats(output, t);
    if (weight == 0) continue;
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) to[i] += row[i] * weight;
  }
}

}  // namespace

const ResizeSums kByteSums{along_row, along_columns};
const ResizeSums kFloatSums{floats_along_row, floats_along_columns};
const ResizeRuns kResizeScalar{nullptr, &kCastScalar, &kByteSums, &kFloatSums,
                               recolor, saturate,     gray_sum};

}  // namespace pinfeed::kernels
