// The oracle: the definition in resize.h, written down as it stands. Kept plain on purpose.
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

}  // namespace

const ResizeRuns kResizeScalar{normalize_images_scalar, along_row, along_columns, recolor};

}  // namespace pinfeed::kernels
