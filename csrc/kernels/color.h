// Values of images changed: one by one, by a table of all 256 bytes, or pixel by pixel, towards
// gray.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

namespace pinfeed::kernels {

// Brightness, contrast and saturation as torchvision changes them in uint8 images: value * factor;
// fma(mean, 1 - factor, value * factor) with the mean of the image's gray; and
// fma(gray, 1 - factor, value * factor) with the gray of the pixel. Each is clamped to 0..255 and
// cut off. Their order is drawn, and each changes what the one before left.
struct ColorStep {
  std::array<double, 2> brightness{1, 1};  // from and to which factor
  std::array<double, 2> contrast{1, 1};
  std::array<double, 2> saturation{1, 1};  // 0 makes an image gray
  double probability = 1;

  bool changes_contrast() const { return contrast != std::array<double, 2>{1, 1}; }
  bool changes_saturation() const { return saturation != std::array<double, 2>{1, 1}; }
};

// What is done to the images of a batch: what is drawn follows from the key, the sample's number
// and that of the step alone.
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

// What is done to the values of one image, one after the other.
using ColorChanges = std::vector<std::variant<ColorTable, Saturation>>;

// Draws the changes of all steps for one image. Where a step needs the mean of the values so far,
// it calls `mean(changes)`, which applies the changes; the list then starts again.
ColorChanges draw_changes(const Colors& colors, std::size_t image,
                          const std::function<float(const ColorChanges&)>& mean);

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count);

// Pixels of three bytes, whose gray is floor(fma(blue, 0.114, fma(green, 0.587, red * 0.2989))).
void saturate(const Saturation& saturation, std::uint8_t* pixels, std::size_t count);

// The sum of the gray of such pixels.
std::uint64_t gray_sum(const std::uint8_t* pixels, std::size_t count);

}  // namespace pinfeed::kernels
