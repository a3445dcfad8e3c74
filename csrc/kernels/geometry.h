// Crops and flips: which window of each image of a batch is seen, and which way round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/image.h"

namespace pinfeed::kernels {

// One crop or flip. All of an image are done one after the other, each to what the one before left.
struct GeometryStep {
  enum class Kind : std::uint8_t { random_crop, center_crop, flip_rows, flip_columns };

  Kind kind;
  // Of crops.
  std::int64_t height;
  std::int64_t width;
  // Of random crops: pixels added first, before and after; and on both sides of what lacks some.
  std::int64_t above;
  std::int64_t left;
  std::int64_t below;
  std::int64_t right;
  bool pad_if_needed;
  // Of flips.
  double probability;
};

// Rows and columns of an image, maybe beyond it, seen from the bottom or from the right.
struct Window {
  std::int64_t top;
  std::int64_t left;
  std::int64_t height;
  std::int64_t width;
  bool flipped_rows;
  bool flipped_columns;
};

// What may be wrong with an image, whatever is drawn: a random crop is larger than the image with
// its padding; the image has no pixels to repeat, or not as many as are to be mirrored.
enum class Misfit : std::uint8_t { none, too_small, no_pixels, too_few_to_mirror };

// The window of an image of height x width after all steps. The random numbers follow from the key,
// the number of the sample and that of the step alone.
Misfit find_window(std::span<const GeometryStep> steps, Border border, std::int64_t height,
                   std::int64_t width, std::uint64_t key, std::int64_t sample, Window& window);

}  // namespace pinfeed::kernels
