#include "kernels/color.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

// Geometries number their steps from 0; these numbers must differ.
constexpr std::uint64_t kFirstStep = std::uint64_t{1} << 62;

using Mean = std::function<float(const ColorChanges&)>;

template <class Change>
void change_bytes(ColorChanges& changes, const Change& to) {
  if (changes.empty() || !std::holds_alternative<ColorTable>(changes.back())) {
    ColorTable& table = changes.emplace_back().emplace<ColorTable>();
    std::iota(table.begin(), table.end(), std::uint8_t{0});
  }
  for (std::uint8_t& value : std::get<ColorTable>(changes.back())) {
    value = static_cast<std::uint8_t>(to(value));
  }
}

// A factor over 255 gives the same as 255.
void brighten(double drawn, ColorChanges& changes) {
  if (drawn == 1) return;
  const auto factor = static_cast<float>(std::min(drawn, 255.0));
  change_bytes(changes, [=](std::uint8_t value) {
    return static_cast<int>(std::min(static_cast<float>(value) * factor, 255.0f));
  });
}

// The weight of a value, and the weight of the value that it is blended with.
Saturation factors(double drawn) {
  const double finite = std::min(drawn, 1e30);  // times a byte, too
  return {static_cast<float>(finite), static_cast<float>(1 - finite)};
}

std::uint8_t blended(float center, const Saturation& by, std::uint8_t value) {
  const float sum = std::fma(center, by.rest, static_cast<float>(value) * by.factor);
  return static_cast<std::uint8_t>(std::clamp(sum, 0.0f, 255.0f));
}

void change_contrast(double drawn, float mean, ColorChanges& changes) {
  change_bytes(changes, [mean, by = factors(drawn)](std::uint8_t value) {
    return blended(mean, by, value);
  });
}

void jitter(const ColorStep& step, const Philox& random, std::uint64_t sample, std::uint64_t number,
            const Mean& mean, ColorChanges& changes) {
  const auto draw = [&](std::uint64_t which) { return random(sample, number << 2 | which); };
  const auto [contrast, brightness] = draw(kFirstStep);
  const auto [saturation, order] = draw(kFirstStep | 1);
  if (step.probability < 1 && uniform(draw(kFirstStep | 2)[0]) >= step.probability) return;
  constexpr std::uint8_t kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const std::uint8_t which : kOrders[below(6, order)]) {
    if (which == 0) {
      brighten(between(step.brightness, brightness), changes);
    } else if (which == 1 && step.changes_contrast()) {
      const float mean_before = mean(changes);
      changes.clear();
      change_contrast(between(step.contrast, contrast), mean_before, changes);
    } else if (which == 2 && step.changes_saturation()) {
      changes.emplace_back(factors(between(step.saturation, saturation)));
    }
  }
}

// Products and sums of so few bits are exact in double, so each is rounded once, as fma does.
unsigned gray_of(const std::uint8_t* pixel) {
  const float red = static_cast<float>(pixel[0]) * 0.2989f;
  const auto yellow = static_cast<float>(pixel[1] * double{0.587f} + double{red});
  return static_cast<unsigned>(static_cast<float>(pixel[2] * double{0.114f} + double{yellow}));
}

}  // namespace

bool Colors::need_mean() const { return std::ranges::any_of(steps, &ColorStep::changes_contrast); }

ColorChanges draw_changes(const Colors& colors, std::size_t image, const Mean& mean) {
  const auto& [steps, key, samples, frames] = colors;
  const auto sample = static_cast<std::uint64_t>(samples[image / frames]);
  const Philox random(key);
  ColorChanges changes;
  for (std::size_t number = 0; number < steps.size(); ++number) {
    jitter(steps[number], random, sample, number, mean, changes);
  }
  return changes;
}

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = table[values[i]];
}

void saturate(const Saturation& saturation, std::uint8_t* pixels, std::size_t count) {
  for (std::uint8_t* pixel = pixels; pixel != pixels + 3 * count; pixel += 3) {
    const auto gray = static_cast<float>(gray_of(pixel));
    for (std::size_t c = 0; c < 3; ++c) pixel[c] = blended(gray, saturation, pixel[c]);
  }
}

std::uint64_t gray_sum(const std::uint8_t* pixels, std::size_t count) {
  std::uint64_t sum = 0;
  for (const std::uint8_t* pixel = pixels; pixel != pixels + 3 * count; pixel += 3) {
    sum += gray_of(pixel);
  }
  return sum;
}

}  // namespace pinfeed::kernels
