#include "kernels/color.h"

#include <algorithm>
#include <numeric>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

using Kind = ColorStep::Kind;

// Geometries count their steps from 0 on; these are others.
constexpr std::uint64_t kFirstStep = std::uint64_t{1} << 62;

std::uint8_t changed(const ColorStep& step, float factor, std::uint8_t value) {
  switch (step.kind) {
    case Kind::brightness:
      return static_cast<std::uint8_t>(std::min(static_cast<float>(value) * factor, 255.0f));
    case Kind::posterize:
      return static_cast<std::uint8_t>(value & 0xFF00u >> static_cast<unsigned>(step.low));
    case Kind::solarize:
      if (value < step.low) return value;
      break;
    case Kind::invert:
      break;
  }
  return static_cast<std::uint8_t>(~value);
}

}  // namespace

ColorTable draw_table(std::span<const ColorStep> steps, std::uint64_t key, std::int64_t sample) {
  const Philox random(key);
  ColorTable table;
  std::iota(table.begin(), table.end(), std::uint8_t{0});
  for (std::size_t number = 0; number < steps.size(); ++number) {
    const ColorStep& step = steps[number];
    const auto [first, second] = random(static_cast<std::uint64_t>(sample), kFirstStep | number);
    if (uniform(first) >= step.probability) continue;
    const auto factor = static_cast<float>(step.low + uniform(second) * (step.high - step.low));
    for (std::uint8_t& value : table) value = changed(step, factor, value);
  }
  return table;
}

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = table[values[i]];
}

}  // namespace pinfeed::kernels
