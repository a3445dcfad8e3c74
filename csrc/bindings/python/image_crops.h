// Crops, flips and sizes of the images of a batch.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/python/image_samples.h"
#include "bindings/python/options.h"
#include "kernels/color.h"
#include "kernels/geometry.h"
#include "kernels/image.h"
#include "kernels/resize.h"

namespace pinfeed::bindings {

using Integers = pybind11::array_t<std::int64_t, pybind11::array::c_style>;
using Corners = pybind11::array_t<double, pybind11::array::c_style>;
using Flags = pybind11::array_t<bool, pybind11::array::c_style>;

// The borders of images: a mode, and for constant borders a value for all channels or one per
// channel.
struct BorderOptions {
  kernels::Border kind = kernels::Border::constant;
  pybind11::sequence fill = pybind11::make_tuple(0);
};

// The options of crops and color changes.
struct AugmentOptions {
  std::vector<kernels::GeometryStep> steps;
  BorderOptions border;          // of the image
  BorderOptions resized_border;  // of the resized image
  kernels::Interpolation interpolation = kernels::Interpolation::bilinear;
  // Antialiased interpolations; if there are any, one is drawn for each sample.
  std::vector<kernels::Interpolation> one_of = {};
  bool in_floats = false;  // whether bytes are interpolated without rounding
  std::vector<kernels::ColorStep> colors;
  bool may_be_small = false;  // whether random crops keep smaller images whole
};

// Objects in the images of a batch: the corners x1, y1, x2, y2 of their boxes in pixels, float64 of
// shape (total, 4); the offsets of each image's objects, int64 of shape (B + 1,); and whether each
// remains, bool of shape (total,), which crops may change.
using ObjectBoxes = std::tuple<Corners, Integers, Flags>;

inline std::uint8_t* flags_of(const Flags& flags) {
  return reinterpret_cast<std::uint8_t*>(const_cast<bool*>(flags.data()));
}

// The crops of a batch's images, common to all entries that share the geometry.
struct ImageCrops {
  std::string entry;  // the entry whose images determined them
  std::vector<kernels::Transform> transforms;
  std::vector<kernels::ImageSize> sources;  // the sizes of the images
};

// The source of a batch's random numbers.
struct Draw {
  std::uint64_t key;
  const Integers& samples;
  const ObjectBoxes* objects = nullptr;
};

// Whether padding or a resize makes an image of `own` pixels too large: over 2**26 pixels and over
// 16 times `own`. This happens when a horizontal and a vertical strip are padded together, or when
// a strip is resized by its shorter edge.
inline double pixels(auto height, auto width) {
  return static_cast<double>(height) * static_cast<double>(width);
}
inline bool is_too_large(double pixels, double own) {
  return pixels > std::max(double{1 << 26}, 16 * own);
}
inline constexpr const char* kTooManyPixels = "more than 2**26 pixels";

inline std::string pair_text(std::int64_t first, std::int64_t second) {
  const std::int64_t pair[] = {first, second};
  return shape_text(pair);
}
inline std::string size_text(const kernels::ImageSize& size) {
  return pair_text(static_cast<std::int64_t>(size.height), static_cast<std::int64_t>(size.width));
}

// Throws ValueError unless there are offsets from 0 to at most `items` for each of the images.
void require_offsets(const Integers& offsets, std::size_t images, pybind11::ssize_t items,
                     const std::string& name);
void require_objects(const ObjectBoxes& objects, std::size_t images, const std::string& name);

// Adds the classes of AugmentOptions to the module.
void register_augment_options(pybind11::module_& m);

// Draws the crops of a batch's images. Throws ValueError; a message about one image names its
// number.
std::shared_ptr<ImageCrops> find_crops(const Images& images, const AugmentOptions& options,
                                       const Draw& draw, std::string entry);

// The crops, resizes and color changes of a batch's images.
class Crops {
 public:
  // `rows`: the number of each image's crop; empty if image i has crop i. Throws ValueError; a
  // message about one image names its number.
  Crops(const Images& images, const AugmentOptions& options, const Draw& draw,
        std::shared_ptr<const ImageCrops> crops, std::vector<std::size_t> rows);

  // The size of each crop; throws if crops must have one size and differ.
  std::vector<kernels::ImageSize> sizes() const;
  kernels::ImageSize common_size() const;

  // The color changes; null: none.
  const kernels::Colors* colors() const { return colors_.steps.empty() ? nullptr : &colors_; }

  // Applies the crops to the sources of the images.
  void apply(std::vector<kernels::ImageSource>& sources);

  // The resizes of these crops, one per image; empty if none is resized.
  std::vector<std::optional<kernels::ImageResize>> resizes() const;
  kernels::Interpolation interpolation() const { return interpolation_; }
  bool in_floats() const { return in_floats_; }

 private:
  const kernels::Transform& transform(std::size_t image) const {
    return crops_->transforms[rows_.empty() ? image : rows_[image]];
  }
  bool any_is_resized() const;
  void require_sizes() const;
  void require_values() const;

  const Images& images_;
  kernels::Borders borders_;
  std::array<std::vector<std::uint8_t>, 2> fills_;  // a pixel beyond each border
  std::vector<std::uint8_t> fill_row_;              // the first one's, for ImageCrop::fill
  kernels::Interpolation interpolation_;
  std::vector<std::optional<kernels::Interpolation>> drawn_;  // per image
  bool in_floats_;
  std::shared_ptr<const ImageCrops> crops_;
  std::vector<std::size_t> rows_;
  std::vector<kernels::ImageCrop> beyond_;
  kernels::Colors colors_{};
};

template <>
struct Names<kernels::Border> {
  static constexpr std::pair<const char*, kernels::Border> all[] = {
      {"constant", kernels::Border::constant},
      {"edge", kernels::Border::edge},
      {"reflect", kernels::Border::reflect}};
};
template <>
struct Names<kernels::Interpolation> {
  static constexpr std::pair<const char*, kernels::Interpolation> all[] = {
      {"bilinear", kernels::Interpolation::bilinear},
      {"bicubic", kernels::Interpolation::bicubic},
      {"nearest", kernels::Interpolation::nearest},
      {"nearest-exact", kernels::Interpolation::nearest_exact}};
};

}  // namespace pinfeed::bindings
