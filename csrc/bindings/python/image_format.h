// What becomes of images, as fields say it once.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "kernels/image.h"

namespace pinfeed::bindings {

using Constants = pybind11::array_t<double, pybind11::array::c_style>;

struct ImageFormat {
  Constants mean{0};  // one for all channels or one for each
  Constants std{0};
  std::optional<double> scale;  // none: that of the images' dtype
  std::string input;            // a letter for each axis of an image
  bool is_guess = false;        // nobody said so
  std::string output;           // and of what it becomes
  std::string dtype;            // of that
};

DType out_dtype(const ImageFormat& format);
kernels::PixelType pixel_type(DType dtype);

// As kernels see the items of images. Those that become integers of the same size stay as they are.
kernels::ScalarType item_type(DType from, DType to);

// The kernels' constants: computed as double, rounded once.
struct Scaling {
  std::vector<float> scales, biases;

  // Throws ValueError for constants of another number of channels.
  Scaling(const ImageFormat& format, DType dtype, std::int64_t channels, const std::string& name);

  bool is_identity() const;
};

}  // namespace pinfeed::bindings
