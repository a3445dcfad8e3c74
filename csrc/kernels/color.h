// Values of images changed one by one: a table of all 256 bytes for each image.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace pinfeed::kernels {

// Brightness and contrast as torchvision changes those of uint8: value * factor, and
// fma(mean, 1 - factor, value * factor) with the image's mean, both clamped to 0..255 and cut off,
// in an order that is drawn; each step changes what the one before left.
struct ColorStep {
  std::array<double, 2> brightness{1, 1};  // from and to which factor
  std::array<double, 2> contrast{1, 1};

  bool changes_contrast() const { return contrast != std::array<double, 2>{1, 1}; }
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

// The table of all steps for one image. `mean(table)` is called where the mean of its values so far
// is needed: it changes them by the table, which then begins anew.
ColorTable draw_table(const Colors& colors, std::size_t image,
                      const std::function<float(const ColorTable&)>& mean);

void recolor(const ColorTable& table, std::uint8_t* values, std::size_t count);

// The sum of floor(fma(blue, 0.114, fma(green, 0.587, red * 0.2989))) over pixels of three bytes.
std::uint64_t gray_sum(const std::uint8_t* pixels, std::size_t count);

}  // namespace pinfeed::kernels
