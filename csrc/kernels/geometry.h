// Crops, flips and sizes: which window of each image of a batch is seen, and which way round.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/image.h"

namespace pinfeed::kernels {

// One of the steps that are done to an image, each to what the one before left.
struct GeometryStep {
  enum class Kind : std::uint8_t {
    random_crop,
    center_crop,
    pad,                  // by `above`, `left`, `below` and `right` pixels
    zoom_out,             // to a canvas whose sides are a factor in `range` times the image's
    iou_crop,             // a window that overlaps the boxes of the image's objects
    random_resized_crop,  // a window of any size, resized to height x width
    resize,               // to height x width
    resize_edges,      // to a shorter edge of `height`, as long as the other gets `width` at most;
                       // 0 stands for none
    resize_between,    // to a shorter edge of `height` to below `width`
    resize_to_one_of,  // to a shorter edge of one of `sizes`, the other as in resize_edges
    scale_jitter,      // to fit into height x width, times a factor in `range`
    keep_ratio,        // to fit into height x width, or to cover it, as timm's ResizeKeepRatio does
    flip_rows,
    flip_columns
  };

  Kind kind = Kind::flip_rows;
  // Of all but flips; of crops 0, where `share` says which part of each side remains.
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::array<double, 2> share = {};
  // Of padding, and of random crops, which are made afterwards: pixels added before and after.
  std::int64_t above = 0;
  std::int64_t left = 0;
  std::int64_t below = 0;
  std::int64_t right = 0;
  bool pad_if_needed = false;  // of random crops: on both sides of what lacks some
  // Of center crops: begin at the pixel before the middle, as transformers does, where torchvision
  // rounds to even. Of resize_edges: transformers' size of an image whose longer edge would be
  // longer than `width`.
  bool as_transformers = false;
  // From and to which share of the area, or which factor of the sides.
  std::array<double, 2> range = {};
  std::array<double, 2> ratio = {};  // of width to height
  // Of resize_to_one_of.
  std::vector<std::int64_t> sizes = {};
  // Of crops around boxes: one is drawn of how much of the union a box must share with the window,
  // 1 for the whole image; and how many windows are tried for it.
  std::vector<double> overlaps = {};
  std::int64_t trials = 0;
  // The probability of a flip or of zooming out; for keep_ratio, of drawing a factor in `range`.
  double probability = 0;
  // Of keep_ratio: 0 to cover height x width, 1 to fit into it, or between them; whether `range` is
  // of the area that is seen, not of the sides; and how probable another ratio in `ratio` is.
  double longest = 0;
  bool by_area = false;
  double ratio_probability = 0;
};

// The objects in an image: corners x1, y1, x2, y2 of their boxes in its pixels, and for each
// whether it remains.
struct Objects {
  const double* corners = nullptr;
  std::uint8_t* remain = nullptr;
  std::size_t count = 0;
};

// Rows and columns of an image, maybe beyond it, seen from the bottom or from the right.
struct Window {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool flipped_rows = false;
  bool flipped_columns = false;
  bool cropped = false;  // whether it has been moved: boxes that leave it lose what is beyond
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
  Window& seen() { return resized ? kept : source; }

  // To another size, of a view that is not resized.
  void resize(std::int64_t to_height, std::int64_t to_width) {
    resized = true;
    height = to_height;
    width = to_width;
    kept = {.height = to_height, .width = to_width};
  }
};

// From a coordinate of the image to that of what is seen of it: a point between pixels, from 0 to
// the image's size.
struct AxisToView {
  double begin;
  double factor;
  double mirrored;  // the size of what is seen, if it is mirrored; else negative

  double operator()(double of_image) const {
    const double moved = (of_image - begin) * factor;
    return mirrored < 0 ? moved : mirrored - moved;
  }
};
struct ImageToView {
  AxisToView x;
  AxisToView y;
};
ImageToView image_to_view(const View& view);

// What stands beyond the edges of an image, and of what it is resized to.
struct Borders {
  Border source;
  Border resized;
};

// What may be wrong with an image, whatever is drawn: a random crop is larger than the image with
// its padding; the image has no pixels to repeat, or not as many as are to be mirrored; it has none
// to resize, or gets none.
enum class Misfit : std::uint8_t { none, too_small, no_pixels, too_few_to_mirror, empty, vanishes };

// How the views of a batch are found.
struct Geometry {
  std::span<const GeometryStep> steps;  // of which at most one resizes
  Borders borders;
  bool may_be_small;  // whether a random crop takes what there is of a smaller image
  std::uint64_t key;
};

// Which of `count` interpolations resizes the image of a sample.
std::size_t draw_interpolation(std::size_t count, std::uint64_t key, std::int64_t sample);

// The view of an image of height x width after all steps. The random numbers follow from the key,
// the number of the sample and that of the step alone, and crops around boxes from the objects; of
// these, those whose centre such a crop does not see no longer remain. Of a crop that does not fit,
// the view has the size.
Misfit find_view(const Geometry& geometry, std::int64_t height, std::int64_t width,
                 std::int64_t sample, const Objects& objects, View& view);

}  // namespace pinfeed::kernels
