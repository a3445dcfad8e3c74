// Color changes of images: a table of all 256 bytes, or a blend of each pixel with its gray.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

namespace pinfeed::kernels {

// Brightness, contrast and saturation of uint8 images, like torchvision's: value * factor;
// fma(mean, 1 - factor, value * factor) with the mean gray of the image; and fma(gray, 1 - factor,
// value * factor) with the gray of the pixel. Each result is clamped to 0..255 and truncated. The
// order is random, and each step changes the result of the one before.
struct ColorStep {
  std::array<double, 2> brightness{1, 1};  // range of the factor
  std::array<double, 2> contrast{1, 1};
  std::array<double, 2> saturation{1, 1};  // 0 makes an image gray
  double probability = 1;

  bool changes_contrast() const { return contrast != std::array<double, 2>{1, 1}; }
  bool changes_saturation() const { return saturation != std::array<double, 2>{1, 1}; }
};

// The color steps of a batch. Random draws depend only on the key, the sample's number and the
// step's number.
struct Colors {
  std::span<const ColorStep> steps;
  std::uint64_t key;
  const std::int64_t* samples;
  std::size_t frames;  // images of each sample

  bool need_mean() const;
};

using ColorTable = std::array<std::uint8_t, 256>;

// fma(gray, rest, value * factor) for each of a pixel's three bytes.
struct Saturation {
  float factor;
  float rest;
};

// The color changes of one image, in order.
using ColorChanges = std::vector<std::variant<ColorTable, Saturation>>;

// Draws the changes of all steps for one image. A step that needs the mean of the current values
// calls `mean(changes)`, which applies the changes; the list then starts empty.
ColorChanges draw_changes(const Colors& colors, std::size_t image,
                          const std::function<float(const ColorChanges&)>& mean);

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count);

// Pixels of three bytes, whose gray is floor(fma(blue, 0.114, fma(green, 0.587, red * 0.2989))).
void saturate(const Saturation& saturation, std::uint8_t* pixels, std::size_t count);

// The sum of the gray of these pixels.
std::uint64_t gray_sum(const std::uint8_t* pixels, std::size_t count);

}  // namespace pinfeed::kernels
