// Crops, flips and sizes of the images of a batch.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
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

// What stands beyond the edges of images, and for a constant border a value for all channels or one
// for each.
struct BorderOptions {
  kernels::Border kind = kernels::Border::constant;
  pybind11::sequence fill = pybind11::make_tuple(0);
};

// What is seen of each image, and done to its values.
struct AugmentOptions {
  std::vector<kernels::GeometryStep> steps;
  BorderOptions border;          // of the image
  BorderOptions resized_border;  // of what it is resized to
  kernels::Interpolation interpolation = kernels::Interpolation::bilinear;
  bool in_floats = false;  // whether bytes are interpolated without being rounded
  std::vector<kernels::ColorStep> colors;
};

// What a batch's random numbers follow from, and the images of another leaf, which must have the
// same sizes.
struct Draw {
  std::uint64_t key;
  const Integers& samples;
  const std::optional<std::tuple<Integers, std::string>>& other_leaf;  // its sizes and its name
};

// Windows that are given: float64 of shape (B, 6), as Windows::write tells them; the height and
// width that they get; how they are interpolated for it.
struct GivenWindows {
  const pybind11::array_t<double, pybind11::array::c_style>& windows;
  std::array<std::int64_t, 2> size;
  kernels::Interpolation interpolation;
  bool in_floats;
};

// Adds the classes of AugmentOptions to the module.
void register_augment_options(pybind11::module_& m);

// The windows of a batch's images, all of one size.
class Windows {
 public:
  // Throws ValueError; a message about one image says which.
  Windows(const Images& images, const AugmentOptions& options, const Draw& draw);
  Windows(const Images& images, const GivenWindows& given);

  std::int64_t height() const { return views_[0].seen().height; }
  std::int64_t width() const { return views_[0].seen().width; }
  pybind11::object sizes() const { return sizes_; }

  // float64 of shape (B, 6): top, left, height and width of what is seen of each image, in its own
  // pixels; 1 or 0 for mirrored top to bottom; the same for left to right.
  pybind11::object write(const OutputRequest& request) const;

  // What is done to their values; null: nothing.
  const kernels::Colors* colors() const { return colors_.steps.empty() ? nullptr : &colors_; }

  // Makes windows of the images that lie there.
  void apply(std::vector<kernels::ImageSource>& sources);

  // What becomes of these windows, one for each image; empty if none is resized.
  std::vector<std::optional<kernels::ImageResize>> resizes() const;
  kernels::Interpolation interpolation() const { return interpolation_; }
  bool in_floats() const { return in_floats_; }

 private:
  bool any_is_resized() const;
  [[noreturn]] void fail(std::size_t image, std::string expected, std::string got,
                         std::string hint = "") const;
  void require_sizes(const Integers& others, const std::string& leaf) const;
  void require_fit(std::size_t image, kernels::Misfit misfit) const;
  void require_no_canvas(std::size_t image) const;
  void interpolate(kernels::Interpolation interpolation, bool bytes_in_floats);
  void require_values() const;

  const Images& images_;
  kernels::Borders borders_;
  std::array<std::vector<std::uint8_t>, 2> fills_;  // a pixel beyond each border
  std::vector<std::uint8_t> fill_row_;              // of the first, as ImageWindow takes it
  kernels::Interpolation interpolation_;
  bool in_floats_;
  Integers sizes_;
  std::vector<kernels::View> views_;
  std::vector<kernels::ImageWindow> beyond_;
  kernels::Colors colors_{};
};

}  // namespace pinfeed::bindings

namespace pinfeed::bindings {

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
      {"nearest", kernels::Interpolation::nearest}};
};

}  // namespace pinfeed::bindings

template <>
struct pybind11::detail::type_caster<pinfeed::kernels::Border>
    : pinfeed::bindings::NamedCaster<pinfeed::kernels::Border> {};
template <>
struct pybind11::detail::type_caster<pinfeed::kernels::Interpolation>
    : pinfeed::bindings::NamedCaster<pinfeed::kernels::Interpolation> {};
