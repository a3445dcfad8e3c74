// A rectangle of each image of a batch written over: the second, small write of random erasing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

// Where the values of an image lie: how many there are, and the bytes from one to the next.
struct ImagePlaces {
  std::byte* data;
  std::size_t item_size;  // 1, 2, 4 or 8 bytes
  std::size_t frames;
  std::size_t channels;
  std::size_t frame_stride;
  std::size_t channel_stride;
  std::size_t row_stride;
  std::size_t column_stride;  // of one item; or of a pixel, whose channels lie side by side
};

// What is written: an item for each channel; or for each value of a frame one of 2^16, at random.
struct ErasingValues {
  const void* items;
  bool are_drawn;
};

// Writes the rectangle, the same in all frames. What is drawn follows from the key, the sample and
// the place in the rectangle alone, not from the layout. Throws std::bad_alloc.
void erase(const ImagePlaces& image, const ErasingValues& values, const Rectangle& rectangle,
           std::uint64_t key, std::int64_t sample);

}  // namespace pinfeed::kernels
