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
#include "kernels/geometry.h"
#include "kernels/image.h"
#include "kernels/resize.h"

namespace pinfeed::bindings {

using Integers = pybind11::array_t<std::int64_t, pybind11::array::c_style>;
// What stands beyond the edges, and for a constant border a value for all channels or one for each.
using GivenBorder = std::tuple<std::string, pybind11::sequence>;

// What is done to values: its kind, its probability, and the numbers of that kind.
using GivenColor = std::tuple<std::string, double, std::vector<double>>;

// How images are interpolated, and whether bytes are without being rounded.
using GivenInterpolation = std::tuple<std::string, bool>;

// What is seen of each image, in this order: the crops, flips and sizes; the borders of the image
// and of what it is resized to; how it is interpolated; the key and the samples that random numbers
// follow from; None, or the sizes of the images of another leaf, which must be the same, and its
// name; whether the windows are wanted; and what is done to the values.
using Crop = std::tuple<pybind11::tuple, std::array<GivenBorder, 2>, GivenInterpolation,
                        std::uint64_t, Integers, std::optional<std::tuple<Integers, std::string>>,
                        bool, std::vector<GivenColor>>;

// Windows that are given: float64 of shape (B, 6), as Windows::write tells them; the height and
// width that they get; how they are interpolated for it.
using GivenWindows = std::tuple<pybind11::array_t<double, pybind11::array::c_style>,
                                std::array<std::int64_t, 2>, GivenInterpolation>;

// The windows of a batch's images, all of one size.
class Windows {
 public:
  // Throws ValueError; a message about one image says which.
  Windows(const Images& images, const Crop& crop);
  Windows(const Images& images, const GivenWindows& given);

  std::int64_t height() const { return views_[0].seen().height; }
  std::int64_t width() const { return views_[0].seen().width; }
  pybind11::object sizes() const { return sizes_; }

  // float64 of shape (B, 6): top, left, height and width of what is seen of each image, in its own
  // pixels; 1 or 0 for mirrored top to bottom; the same for left to right.
  pybind11::object write(const OutputRequest& request) const;

  // What is done to their values; null: nothing.
  const kernels::Colors* colors() const { return color_steps_.empty() ? nullptr : &colors_; }

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
  void interpolate(const GivenInterpolation& given);
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
  std::vector<kernels::ColorStep> color_steps_;
  kernels::Colors colors_{};
};

}  // namespace pinfeed::bindings
