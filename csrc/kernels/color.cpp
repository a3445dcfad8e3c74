#include "kernels/color.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

// Geometries count their steps from 0 on; these are others.
constexpr std::uint64_t kFirstStep = std::uint64_t{1} << 62;

template <class Change>
void change(ColorTable& table, const Change& to) {
  for (std::uint8_t& value : table) value = static_cast<std::uint8_t>(to(value));
}

// 255 and more do the same to every byte.
void brighten(double drawn, ColorTable& table) {
  const auto factor = static_cast<float>(std::min(drawn, 255.0));
  change(table, [=](std::uint8_t value) {
    return static_cast<int>(std::min(static_cast<float>(value) * factor, 255.0f));
  });
}

void change_contrast(double drawn, float mean, ColorTable& table) {
  const double finite = std::min(drawn, 1e30);  // times a byte, too
  const auto factor = static_cast<float>(finite), rest = static_cast<float>(1 - finite);
  change(table, [=](std::uint8_t value) {
    const float sum = std::fma(mean, rest, static_cast<float>(value) * factor);
    return static_cast<int>(std::clamp(sum, 0.0f, 255.0f));
  });
}

using Mean = std::function<float(const ColorTable&)>;

void jitter(const ColorStep& step, const std::array<std::uint64_t, 2>& drawn, const Mean& mean,
            ColorTable& table) {
  const bool contrast_first = (drawn[0] & 1) != 0;  // a bit that no factor is made of
  if (!contrast_first) brighten(between(step.brightness, drawn[1]), table);
  if (step.changes_contrast()) {
    const float mean_before = mean(table);
    std::iota(table.begin(), table.end(), std::uint8_t{0});
    change_contrast(between(step.contrast, drawn[0]), mean_before, table);
  }
  if (contrast_first) brighten(between(step.brightness, drawn[1]), table);
}

}  // namespace

bool Colors::need_mean() const { return std::ranges::any_of(steps, &ColorStep::changes_contrast); }

ColorTable draw_table(const Colors& colors, std::size_t image, const Mean& mean) {
  const auto& [steps, key, samples, frames] = colors;
  const auto sample = static_cast<std::uint64_t>(samples[image / frames]);
  const Philox random(key);
  ColorTable table;
  std::iota(table.begin(), table.end(), std::uint8_t{0});
  for (std::size_t number = 0; number < steps.size(); ++number) {
    jitter(steps[number], random(sample, kFirstStep | number), mean, table);
  }
  return table;
}

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = table[values[i]];
}

std::uint64_t gray_sum(const std::uint8_t* pixels, std::size_t count) {
  std::uint64_t sum = 0;
  for (const std::uint8_t* pixel = pixels; pixel != pixels + 3 * count; pixel += 3) {
    // Products and sums of so few bits are exact in double, so each is rounded once, as fma does.
    const float red = static_cast<float>(pixel[0]) * 0.2989f;
    const auto yellow = static_cast<float>(pixel[1] * double{0.587f} + double{red});
    sum += static_cast<unsigned>(static_cast<float>(pixel[2] * double{0.114f} + double{yellow}));
  }
  return sum;
}

}  // namespace pinfeed::kernels
