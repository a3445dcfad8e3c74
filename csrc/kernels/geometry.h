// Crops, flips and sizes: draws the crop of each image of a batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/image.h"

namespace pinfeed::kernels {

// One geometric step, applied to the result of the step before.
struct GeometryStep {
  enum class Kind : std::uint8_t {
    random_crop,
    center_crop,
    pad,                  // by `above`, `left`, `below` and `right` pixels
    zoom_out,             // to a canvas whose sides are the image's, times a factor in `range`
    iou_crop,             // a crop that overlaps the boxes of the image's objects
    random_resized_crop,  // a crop of any size, resized to height x width
    resize,               // to height x width
    resize_edges,         // to a shorter edge of `height` and a longer edge of at most
                          // `width`; 0: no maximum
    resize_between,       // to a shorter edge in [`height`, `width`)
    resize_to_one_of,     // to a shorter edge of one of `sizes`, with the maximum of resize_edges
    scale_jitter,         // to fit into height x width, times a factor in `range`
    keep_ratio,           // to fit into height x width or to cover it, like timm's ResizeKeepRatio
    flip_rows,
    flip_columns
  };

  Kind kind = Kind::flip_rows;
  // For all kinds except flips. 0 for crops by `share`, the fraction of each side that remains.
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::array<double, 2> share = {};
  // For padding, and for random crops, which pad first: pixels to add on each side.
  std::int64_t above = 0;
  std::int64_t left = 0;
  std::int64_t below = 0;
  std::int64_t right = 0;
  bool pad_if_needed = false;  // random crops: pad both sides where the image is smaller
  // For center crops: round the offset down, like transformers; torchvision rounds to even. For
  // resize_edges: round sizes like transformers if the longer edge would exceed `width`.
  bool as_transformers = false;
  // The range of the fraction of the area, or of the factor of the sides.
  std::array<double, 2> range = {};
  std::array<double, 2> ratio = {};  // range of width / height
  // For resize_to_one_of.
  std::vector<std::int64_t> sizes = {};
  // For crops around boxes: the minimum overlaps (intersection over union) to draw from, where 1
  // keeps the whole image; and the number of crops to try.
  std::vector<double> overlaps = {};
  std::int64_t trials = 0;
  // The probability of a flip or of zooming out; for keep_ratio, of drawing a factor in `range`.
  double probability = 0;
  // For keep_ratio: 0 to cover height x width, 1 to fit into it, or between; whether `range` is a
  // range of areas, not of sides; and the probability of drawing from `ratio`.
  double longest = 0;
  bool by_area = false;
  double ratio_probability = 0;
};

// The objects in an image: the corners x1, y1, x2, y2 of their boxes, in pixels, and whether each
// remains.
struct Objects {
  const double* corners = nullptr;
  std::uint8_t* remain = nullptr;
  std::size_t count = 0;
};

// A rectangle of an image, possibly flipped. It may extend beyond the image.
struct Crop {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool flipped_rows = false;
  bool flipped_columns = false;
  bool clips_boxes = false;
};

// A crop of an image; if `resized`, the crop is resized to height x width, and the visible part is
// a crop of the result.
struct Transform {
  Crop source;
  bool resized = false;
  std::int64_t height = 0;
  std::int64_t width = 0;
  Crop resized_crop;

  const Crop& visible() const { return resized ? resized_crop : source; }
  Crop& visible() { return resized ? resized_crop : source; }

  // Resizes a crop that is not resized yet.
  void resize(std::int64_t to_height, std::int64_t to_width) {
    resized = true;
    height = to_height;
    width = to_width;
    resized_crop = {.height = to_height, .width = to_width};
  }
};

// Maps a coordinate of the image to a coordinate of the crop. Coordinates are continuous, from 0 to
// the image's size.
struct AxisMap {
  double begin;
  double factor;
  double mirrored;  // the size of a flipped crop; else negative

  double operator()(double of_image) const {
    const double moved = (of_image - begin) * factor;
    return mirrored < 0 ? moved : mirrored - moved;
  }
};
struct CoordinateMap {
  AxisMap x;
  AxisMap y;
};
CoordinateMap coordinate_map(const Transform& transform);

// The borders of the image and of the resized image.
struct Borders {
  Border source;
  Border resized;
};

// Why an image does not fit, independent of the draws: it is smaller than the random crop, padding
// included; it has no pixels to repeat, or too few to mirror; it has no pixels to resize, or would
// be resized to none.
enum class Misfit : std::uint8_t { none, too_small, no_pixels, too_few_to_mirror, empty, vanishes };

// The steps and options of a batch's crops.
struct Geometry {
  std::span<const GeometryStep> steps;  // at most one resizes
  Borders borders;
  bool may_be_small;  // random crops keep smaller images whole
  std::uint64_t key;
};

// Draws which of `count` interpolations resizes the image of a sample.
std::size_t draw_interpolation(std::size_t count, std::uint64_t key, std::int64_t sample);

// Draws the crop of an image of height x width after all steps. Random numbers depend only on the
// key, the sample's number and the step's number; crops around boxes also depend on the objects,
// and drop those whose center they exclude. If a crop does not fit, the result still has its size.
Misfit draw_transform(const Geometry& geometry, std::int64_t height, std::int64_t width,
                      std::int64_t sample, const Objects& objects, Transform& transform);

}  // namespace pinfeed::kernels
