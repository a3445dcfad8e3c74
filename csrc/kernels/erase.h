// Random erasing: overwrites a rectangle of each image, in a second, small write after the batch's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfeed::kernels {

// How rectangles are drawn.
struct Erasing {
  double probability;           // of erasing an image
  std::array<double, 2> area;   // range of the fraction of the image's area
  std::array<double, 2> ratio;  // range of height / width
};

struct Rectangle {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Draws torchvision's erasing rectangle: up to ten tries for one that is smaller than the image in
// both directions, else none. Random numbers depend only on the key and the sample.
Rectangle draw_rectangle(const Erasing& erasing, std::int64_t height, std::int64_t width,
                         std::uint64_t key, std::int64_t sample);

// The values of an image in memory: their numbers and strides in bytes.
struct ImagePlaces {
  std::byte* data;
  std::size_t item_size;  // 1, 2, 4 or 8 bytes
  std::size_t frames;
  std::size_t channels;
  std::size_t frame_stride;
  std::size_t channel_stride;
  std::size_t row_stride;
  std::size_t column_stride;  // of one item; or of a pixel with adjacent channels
};

// What to write: one item per channel; or, per value of a frame, a random one of 2^16 items.
struct ErasingValues {
  const void* items;
  bool are_drawn;
};

// Writes the rectangle, the same in all frames. Random values depend only on the key, the sample
// and the position in the rectangle, not on the layout. Throws std::bad_alloc.
void erase(const ImagePlaces& image, const ErasingValues& values, const Rectangle& rectangle,
           std::uint64_t key, std::int64_t sample);

}  // namespace pinfeed::kernels
