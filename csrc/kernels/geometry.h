// Crops, flips and sizes: which window of each image of a batch is seen, and which way round.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/image.h"

namespace pinfeed::kernels {

// One of the steps that are done to an image, each to what the one before left.
struct GeometryStep {
  enum class Kind : std::uint8_t {
    random_crop,
    center_crop,
    random_resized_crop,  // a window of any size, resized to height x width
    resize,               // to height x width
    resize_edges,  // to a shorter edge of `height`, as long as the other gets `width` at most;
                   // 0 stands for none
    flip_rows,
    flip_columns
  };

  Kind kind = Kind::flip_rows;
  // Of all but flips.
  std::int64_t height = 0;
  std::int64_t width = 0;
  // Of random crops: pixels added first, before and after; and on both sides of what lacks some.
  std::int64_t above = 0;
  std::int64_t left = 0;
  std::int64_t below = 0;
  std::int64_t right = 0;
  bool pad_if_needed = false;
  // Of random resized crops: from and to which share of the area, and which ratio of width to
  // height.
  std::array<double, 2> area = {};
  std::array<double, 2> ratio = {};
  // Of flips.
  double probability = 0;
};

// Rows and columns of an image, maybe beyond it, seen from the bottom or from the right.
struct Window {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool flipped_rows = false;
  bool flipped_columns = false;
};

// What is seen of an image: a window of it; or that, resized to height x width, and a window of the
// result.
struct View {
  Window source;
  bool resized = false;
  std::int64_t height = 0;
  std::int64_t width = 0;
  Window kept;

  const Window& seen() const { return resized ? kept : source; }
};

// What is seen, in pixels of the image and maybe beyond it: top, left, height and width; 1 or 0 for
// mirrored top to bottom; the same for left to right.
std::array<double, 6> region(const View& view);

// What stands beyond the edges of an image, and of what it is resized to.
struct Borders {
  Border source;
  Border resized;
};

// What may be wrong with an image, whatever is drawn: a random crop is larger than the image with
// its padding; the image has no pixels to repeat, or not as many as are to be mirrored; it has none
// to resize, or gets none.
enum class Misfit : std::uint8_t { none, too_small, no_pixels, too_few_to_mirror, empty, vanishes };

// The view of an image of height x width after all steps, of which at most one resizes. The random
// numbers follow from the key, the number of the sample and that of the step alone. Of a crop that
// does not fit, the view has the size.
Misfit find_view(std::span<const GeometryStep> steps, Borders borders, std::int64_t height,
                 std::int64_t width, std::uint64_t key, std::int64_t sample, View& view);

}  // namespace pinfeed::kernels
