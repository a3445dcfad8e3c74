// _core.normalize_images: the one entry for everything that makes pixels.
#include <pybind11/numpy.h>

#include <string>
#include <vector>

#include "bindings/python/module.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/samples.h"
#include "dispatch/dispatch.h"
#include "kernels/image.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::ImageLayout;
using kernels::ImageSource;
using kernels::PixelType;
using Constants = py::array_t<float, py::array::c_style>;

// Which axes of a sample are what; a grey image has no channel axis.
struct Axes {
  const char* text;
  const char* batch_text;
  int height, width, channel;
};

Axes source_axes(const std::string& layout) {
  if (layout == "HWC") return {"(H, W, C)", "(N, H, W, C)", 0, 1, 2};
  if (layout == "CHW") return {"(C, H, W)", "(N, C, H, W)", 1, 2, 0};
  if (layout == "HW") return {"(H, W)", "(N, H, W)", 0, 1, -1};
  throw py::value_error("unknown image layout " + layout);
}

PixelType pixel_type(const std::string& dtype) {
  if (dtype == "float32") return PixelType::float32;
  if (dtype == "float16") return PixelType::float16;
  if (dtype == "bfloat16") return PixelType::bfloat16;
  if (dtype == "uint8") return PixelType::uint8;
  throw py::value_error("unknown image dtype " + dtype);
}

DType dtype_of(PixelType type) {
  switch (type) {
    case PixelType::float32:
      return kFloat32;
    case PixelType::float16:
      return kFloat16;
    case PixelType::bfloat16:
      return kBfloat16;
    case PixelType::uint8:
      break;
  }
  return kUint8;
}

std::vector<float> per_channel(const Constants& constants, std::int64_t channels,
                               const std::string& name) {
  if (constants.ndim() == 0) return std::vector<float>(channels, *constants.data());
  if (constants.size() != channels) {
    throw py::value_error(name + " must have a channel for each value of mean and std, got " +
                          std::to_string(channels) + " channels and " +
                          std::to_string(constants.size()) +
                          " values; a single number serves all channels");
  }
  return {constants.data(), constants.data() + channels};
}

py::object normalize_images(py::object images, py::object indices, const Constants& scale,
                            const Constants& bias, const std::string& layout,
                            const std::string& out_layout, const std::string& dtype,
                            py::object target, py::object as_tensor, const std::string& function,
                            const std::string& name, std::size_t threads) {
  const Axes axes = source_axes(layout);
  const PixelType type = pixel_type(dtype);
  const Samples samples(std::move(images), std::move(indices), name);
  const std::string wanted = std::string("uint8 with shape ") +
                             (samples.all_rows() ? axes.batch_text : axes.text) + ", got " +
                             samples.dtype().name() + " " + shape_text(samples.given_shape());
  // Separate samples agree with the first, so what does not fit is the first one.
  const std::string subject = Subject{name, samples.separate() ? 0 : -1}.text();
  if (samples.dtype() != kUint8) {
    throw py::type_error(subject + " must be " + wanted +
                         "; convert with .astype(np.uint8) or .to(torch.uint8)");
  }
  const std::size_t axis_count = axes.channel < 0 ? 2 : 3;
  if (samples.shape().size() != axis_count) {
    std::string hint;
    if (axis_count == 3 && samples.shape().size() == 2) {
      hint = samples.all_rows() ? "; a single image needs images[None], grey images input=\"NHW\""
                                : "; for grey images say input=\"HW\"";
    }
    throw py::value_error(subject + " must be " + wanted + hint);
  }
  if (samples.count() == 0) throw py::value_error(name + ": expected at least one image, got none");

  const auto size = [&](int axis) { return axis < 0 ? 1 : samples.shape()[axis]; };
  const std::int64_t height = size(axes.height), width = size(axes.width),
                     channels = size(axes.channel);
  const auto count = static_cast<std::int64_t>(samples.count());
  const bool chw = out_layout == "CHW";
  const Shape shape =
      chw ? Shape{count, channels, height, width} : Shape{count, height, width, channels};
  const DType out_dtype = dtype_of(type);
  const std::size_t bytes = checked_bytes(shape, out_dtype, function);
  const std::vector<float> scales = per_channel(scale, channels, name);
  const std::vector<float> biases = per_channel(bias, channels, name);

  // A channels_last tensor: (N, C, H, W) that lies in memory as (N, H, W, C).
  const auto item = static_cast<std::int64_t>(out_dtype.item_size());
  const Shape channels_last{height * width * channels * item, item, width * channels * item,
                            channels * item};
  bool use_channels_last = false;
  const OutputRequest request{std::move(target),
                              as_tensor.is_none() ? samples.is_tensor() : as_tensor.cast<bool>()};
  const Output out = make_output(request, shape, out_dtype, function,
                                 chw ? &channels_last : nullptr, &use_channels_last);
  for (const ArrayView& source : samples.sources()) check_no_overlap(out, bytes, source, function);

  std::vector<ImageSource> sources(samples.count());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    sources[i] = {
        .data = static_cast<const std::uint8_t*>(samples.data()[i]),
        .row_stride = samples.stride(i, static_cast<std::size_t>(axes.height)),
        .column_stride = samples.stride(i, static_cast<std::size_t>(axes.width)),
        .channel_stride =
            axes.channel < 0 ? 1 : samples.stride(i, static_cast<std::size_t>(axes.channel)),
    };
  }
  const kernels::ImageBatch batch{
      .sources = sources.data(),
      .count = sources.size(),
      .height = static_cast<std::size_t>(height),
      .width = static_cast<std::size_t>(width),
      .channels = static_cast<std::size_t>(channels),
      .scale = scales.data(),
      .bias = biases.data(),
      .out = out.data,
      .out_layout = chw && !use_channels_last ? ImageLayout::chw : ImageLayout::hwc,
      .out_type = type,
      .streaming = worth_streaming(bytes),
  };
  if (bytes > 0) {
    const std::size_t rows = batch.count * batch.height;
    run_rows(rows, bytes / rows, threads, [&](std::size_t begin, std::size_t end) {
      dispatch::active_isa().normalize_images(batch, begin, end);
    });
  }
  return out.array;
}

}  // namespace

void register_images(py::module_& m) {
  m.def("normalize_images", &normalize_images, py::arg("images"), py::arg("indices"),
        py::arg("scale"), py::arg("bias"), py::arg("layout"), py::arg("out_layout"),
        py::arg("dtype"), py::arg("target"), py::arg("as_tensor"), py::arg("function"),
        py::arg("name"), py::arg("threads"));
}

}  // namespace pinfeed::bindings
