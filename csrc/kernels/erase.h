// A rectangle of each image of a batch written over: the second, small write of random erasing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/fill.h"
#include "kernels/image.h"

namespace pinfeed::kernels {

// How rectangles are drawn.
struct Erasing {
  double probability;           // that there is one
  std::array<double, 2> area;   // from and to which share of the image's
  std::array<double, 2> ratio;  // of height to width
};

struct Rectangle {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// What is erased of an image of height x width: as torchvision draws it, ten tries to find a
// rectangle that is smaller in both directions, else none. The random numbers follow from the key
// and the sample alone.
Rectangle draw_rectangle(const Erasing& erasing, std::int64_t height, std::int64_t width,
                         std::uint64_t key, std::int64_t sample);

// Writes the rectangle of an image of height x width, contiguous in `layout`; a value per channel.
void erase(void* image, ImageLayout layout, std::size_t height, std::size_t width,
           std::span<const Fill> values, const Rectangle& rectangle);

}  // namespace pinfeed::kernels
