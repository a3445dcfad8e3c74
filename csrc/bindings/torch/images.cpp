#include <cmath>

#include "bindings/torch/ops.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::ImageLayout;
using kernels::PixelType;

constexpr char kFunction[] = "normalize_images";

std::string subject(const char* argument) { return std::string(kFunction) + ": " + argument; }

// The axes of a batch of images; gray ones have no channel axis.
struct Axes {
  const char* text;
  std::int64_t count, height, width, channel;
};

Axes input_axes(const std::string& layout) {
  if (layout == "NHWC") return {"(N, H, W, C)", 4, 1, 2, 3};
  if (layout == "NCHW") return {"(N, C, H, W)", 4, 2, 3, 1};
  if (layout == "NHW") return {"(N, H, W)", 3, 1, 2, -1};
  fail(subject("input"), " must be one of NHWC, NCHW, NHW, got ", layout);
}

PixelType pixel_type(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return PixelType::float32;
    case ScalarType::Half:
      return PixelType::float16;
    case ScalarType::BFloat16:
      return PixelType::bfloat16;
    case ScalarType::Byte:
      return PixelType::uint8;
    default:
      fail(subject("dtype"), " must be float32, float16, bfloat16 or uint8, got ",
           dtype_text(type));
  }
}

void check_images_tensor(const Tensor& images, const Axes& axes) {
  if (images.scalar_type() == ScalarType::Byte && images.dim() == axes.count) return;
  fail(subject("images"), " must be uint8 with shape ", axes.text, ", got ",
       dtype_text(images.scalar_type()), " ", shape_text(images),
       images.scalar_type() == ScalarType::Byte ? "" : "; convert with .to(torch.uint8)");
}

// Mean or std of each channel; a single value applies to all channels.
std::vector<double> per_channel(const Constants& given, double otherwise, const char* name,
                                std::int64_t channels) {
  std::vector<double> values = given.value_or(std::vector{otherwise});
  if (values.size() != 1 && static_cast<std::int64_t>(values.size()) != channels) {
    fail(subject(name), " must have one value, or one for each of the ", channels,
         " channels, got ", values.size());
  }
  for (const double value : values) {
    if (!std::isfinite(value)) fail(subject(name), " must be finite, got ", value);
  }
  const double first = values.empty() ? otherwise : values[0];
  values.resize(static_cast<std::size_t>(channels), first);
  return values;
}

// In float64, rounded to float32 once, like pinfeed.functional.normalize.
void set_constants(NormalizeCall& call, const Constants& means, const Constants& stds,
                   double factor) {
  if (call.batch.type == PixelType::uint8) {
    if (means || stds || factor != 1.0 / 255) {
      fail(kFunction,
           ": mean, std and scale must be omitted with dtype uint8, which only permutes");
    }
    return;
  }
  const auto mean = per_channel(means, 0, "mean", call.batch.channels);
  const auto std = per_channel(stds, 1, "std", call.batch.channels);
  if (!std::isfinite(factor)) fail(subject("scale"), " must be finite, got ", factor);
  for (std::size_t c = 0; c < mean.size(); ++c) {
    if (!(std[c] > 0)) fail(subject("std"), " must be positive, got ", std[c]);
    const auto scale = static_cast<float>(factor / std[c]);
    const auto bias = static_cast<float>(-mean[c] / std[c]);
    if (!std::isfinite(scale) || !std::isfinite(bias)) {
      fail(kFunction, ": scale / std and mean / std must fit in float32, got scale ", factor,
           ", mean ", mean[c], ", std ", std[c]);
    }
    call.scale.push_back(scale);
    call.bias.push_back(bias);
  }
  call.batch.scale = call.scale.data();
  call.batch.bias = call.bias.data();
}

}  // namespace

NormalizeCall check_images(const Tensor& images, const Constants& mean, const Constants& std,
                           double scale, const std::string& input, const std::string& output,
                           std::optional<ScalarType> dtype, bool channels_last) {
  const Axes axes = input_axes(input);
  const bool chw = output == "NCHW";
  if (!chw && output != "NHWC") {
    fail(subject("output"), " must be NCHW or NHWC, got ", output);
  }
  if (channels_last && !chw) {
    fail(subject("channels_last"), " requires output NCHW; NHWC is already channels-last");
  }
  const ScalarType out_dtype = dtype.value_or(ScalarType::Float);
  const PixelType type = pixel_type(out_dtype);
  check_images_tensor(images, axes);

  NormalizeCall call{.images = images, .out = images};
  kernels::ImageTensor& batch = call.batch;
  batch = {.images = static_cast<const std::uint8_t*>(images.const_data_ptr()),
           .image_stride = images.stride(0),
           .row_stride = images.stride(axes.height),
           .column_stride = images.stride(axes.width),
           .channel_stride = axes.channel < 0 ? 1 : images.stride(axes.channel),
           .count = images.size(0),
           .height = images.size(axes.height),
           .width = images.size(axes.width),
           .channels = axes.channel < 0 ? 1 : images.size(axes.channel),
           .type = type};
  set_constants(call, mean, std, scale);

  const Shape shape = chw ? Shape{batch.count, batch.channels, batch.height, batch.width}
                          : Shape{batch.count, batch.height, batch.width, batch.channels};
  call.bytes = checked_bytes(shape, pixel_size(type), kFunction);
  const MemoryFormat format =
      channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  call.out = make_output(shape, out_dtype, subject("out"), images, format);
  batch.out = call.out.mutable_data_ptr();
  batch.layout = chw && !channels_last ? ImageLayout::chw : ImageLayout::hwc;
  return call;
}

}  // namespace pinfeed::torch_ops
