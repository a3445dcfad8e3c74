#include "kernels/color.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

using Kind = ColorStep::Kind;

// Geometries count their steps from 0 on; these are others.
constexpr std::uint64_t kFirstStep = std::uint64_t{1} << 62;

template <class Change>
void change(ColorTable& table, const Change& to) {
  for (std::uint8_t& value : table) value = static_cast<std::uint8_t>(to(value));
}

void take(const ColorStep& step, double draw, ColorTable& table) {
  const auto inverted = [](unsigned value) { return 255 - value; };
  switch (step.kind) {
    case Kind::brightness: {
      // 255 and more do the same to every byte.
      const auto factor =
          static_cast<float>(std::min(step.low + draw * (step.high - step.low), 255.0));
      return change(table, [=](std::uint8_t value) {
        return static_cast<int>(std::min(static_cast<float>(value) * factor, 255.0f));
      });
    }
    case Kind::invert:
      return change(table, inverted);
    case Kind::posterize: {
      const unsigned kept = 0xFF00u >> static_cast<unsigned>(step.low);
      return change(table, [=](unsigned value) { return value & kept; });
    }
    case Kind::solarize: {
      const auto first = static_cast<unsigned>(std::ceil(step.low));
      return change(table, [=](unsigned value) { return value < first ? value : inverted(value); });
    }
  }
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
    take(step, uniform(second), table);
  }
  return table;
}

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = table[values[i]];
}

}  // namespace pinfeed::kernels
