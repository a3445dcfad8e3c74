#include "bindings/python/image_format.h"

#include <algorithm>
#include <cmath>

#include "bindings/python/scalar_types.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// One over the largest value of an integer dtype.
double default_scale(DType dtype) {
  if (dtype.is_floating()) return 1;
  const int bits = static_cast<int>(8 * dtype.item_size());
  return 1 / (std::ldexp(1.0, bits - (dtype.kind() == ScalarKind::signed_int ? 1 : 0)) - 1);
}

}  // namespace

DType out_dtype(const ImageFormat& format) { return dtype_named(format.dtype, Subject{"images"}); }

kernels::PixelType pixel_type(DType dtype) {
  using kernels::PixelType;
  if (dtype == kBfloat16) return PixelType::bfloat16;
  if (dtype.is_floating()) return dtype == kFloat32 ? PixelType::float32 : PixelType::float16;
  return kernels::copied_as(dtype.item_size()).out;
}

kernels::ScalarType item_type(DType from, DType to) {
  const bool stays = !to.is_floating() && from.item_size() == to.item_size();
  return stays ? kernels::copied_as(to.item_size()).in : from.type;
}

Scaling::Scaling(const ImageFormat& format, DType dtype, std::int64_t channels,
                 const std::string& name) {
  const Constants &means = format.mean, &stds = format.std;
  const double scale = format.scale.value_or(default_scale(dtype));
  for (const Constants* given : {&means, &stds}) {
    if (given->ndim() == 0 || given->size() == channels) continue;
    throw py::value_error(
        name + ": expected a channel for each value of mean and std, got " +
        std::to_string(channels) + " channels and " + std::to_string(given->size()) + " values; " +
        (channels == 4 && given->size() == 3 ? "RGBA takes four, or PIL's .convert(\"RGB\")"
                                             : "a single number serves all channels"));
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const double mean = means.data()[means.ndim() == 0 ? 0 : c];
    const double std = stds.data()[stds.ndim() == 0 ? 0 : c];
    scales.push_back(static_cast<float>(scale / std));
    biases.push_back(static_cast<float>(-mean / std));
  }
}

bool Scaling::is_identity() const {
  return std::ranges::all_of(scales, [](float scale) { return scale == 1; }) &&
         std::ranges::all_of(biases, [](float bias) { return bias == 0; });
}

}  // namespace pinfeed::bindings
