// Values of images changed one by one: a table of all 256 bytes for each image.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinfeed::kernels {

// One of the steps that are done to a value, each to what the one before left, as torchvision does
// it to uint8.
struct ColorStep {
  enum class Kind : std::uint8_t {
    brightness,  // times a factor from `low` to `high`, clamped and cut off
    invert,
    posterize,  // but for the `low` highest bits, 0
    solarize    // from `low` on inverted
  };

  Kind kind;
  double probability;
  double low;
  double high;
};

using ColorTable = std::array<std::uint8_t, 256>;

// The table of all steps. The random numbers follow from the key, the number of the sample and that
// of the step alone.
ColorTable draw_table(std::span<const ColorStep> steps, std::uint64_t key, std::int64_t sample);

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count);

}  // namespace pinfeed::kernels
