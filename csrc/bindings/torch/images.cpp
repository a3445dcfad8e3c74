#include "bindings/torch/images.h"

#include <cmath>

namespace pinfeed::torch_ops {
namespace {

constexpr char kFunction[] = "normalize_images";

std::string subject(const char* argument) { return std::string(kFunction) + ": " + argument; }

// The axes of a batch of images; grey ones have no channel axis.
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

void check_images_tensor(const Tensor& images, const Axes& axes, DeviceKind kind) {
  check_device(images, kind, subject("images"));
  if (images.scalar_type() == ScalarType::Byte && images.dim() == axes.count) return;
  fail(subject("images"), " must be uint8 with shape ", axes.text, ", got ",
       dtype_text(images.scalar_type()), " ", shape_text(images),
       images.scalar_type() == ScalarType::Byte ? "" : "; convert with .to(torch.uint8)");
}

// Mean or std of a channel; of all channels if there is one value.
class PerChannel {
 public:
  PerChannel(const std::optional<std::vector<double>>& values, double otherwise, const char* name,
             std::int64_t channels)
      : values_(values ? *values : std::vector<double>{otherwise}) {
    if (values_.size() != 1 && static_cast<std::int64_t>(values_.size()) != channels) {
      fail(subject(name), " must have one value, or one for each of the ", channels,
           " channels, got ", values_.size());
    }
    for (const double value : values_) {
      if (!std::isfinite(value)) fail(subject(name), " must be finite, got ", value);
    }
  }

  double operator[](std::size_t channel) const {
    return values_.size() == 1 ? values_[0] : values_[channel];
  }

 private:
  std::vector<double> values_;
};

// In float64, rounded to float32 once, as pinfeed.normalize does.
void set_constants(ImageBatch& batch, const ImageArguments& arguments) {
  if (batch.type == PixelType::uint8) {
    if (arguments.mean || arguments.std || arguments.scale != 1.0 / 255) {
      fail(kFunction, ": dtype uint8 only permutes, so mean, std and scale must be left out");
    }
    batch.scale.resize(static_cast<std::size_t>(batch.channels));  // nothing reads them
    batch.bias = batch.scale;
    return;
  }
  const PerChannel mean(arguments.mean, 0, "mean", batch.channels);
  const PerChannel std(arguments.std, 1, "std", batch.channels);
  if (!std::isfinite(arguments.scale)) {
    fail(subject("scale"), " must be finite, got ", arguments.scale);
  }
  for (std::size_t c = 0; c < static_cast<std::size_t>(batch.channels); ++c) {
    if (std[c] == 0) fail(subject("std"), " must not be 0");
    const auto scale = static_cast<float>(arguments.scale / std[c]);
    const auto bias = static_cast<float>(-mean[c] / std[c]);
    if (!std::isfinite(scale) || !std::isfinite(bias)) {
      fail(kFunction, ": scale / std and mean / std must fit in float32, got scale ",
           arguments.scale, ", mean ", mean[c], ", std ", std[c]);
    }
    batch.scale.push_back(scale);
    batch.bias.push_back(bias);
  }
}

// A place's height or width: what was asked for, or the images' own.
std::int64_t place_size(std::optional<std::int64_t> asked, std::int64_t source, bool has_sizes,
                        const char* name) {
  if (!asked) return source;
  if (*asked < 0 || (*asked < source && !has_sizes)) {
    fail(subject(name), " must be at least that of the images, ", source, ", or sizes must say ",
         "how large each is, got ", *asked);
  }
  return *asked;
}

}  // namespace

ImageBatch check_images(const ImageArguments& arguments, DeviceKind kind, const Tensor* out) {
  const Tensor& images = arguments.images;
  const Axes axes = input_axes(arguments.input);
  const bool chw = arguments.output == "NCHW";
  if (!chw && arguments.output != "NHWC") {
    fail(subject("output"), " must be NCHW or NHWC, got ", arguments.output);
  }
  if (arguments.channels_last && !chw) {
    fail(subject("channels_last"), " is for output NCHW; NHWC lies like that anyway");
  }
  const ScalarType dtype = arguments.dtype.value_or(ScalarType::Float);
  const PixelType type = pixel_type(dtype);
  check_images_tensor(images, axes, kind);

  ImageBatch batch{.images = images,
                   .source_count = images.size(0),
                   .source_height = images.size(axes.height),
                   .source_width = images.size(axes.width),
                   .channels = axes.channel < 0 ? 1 : images.size(axes.channel),
                   .image_stride = images.stride(0),
                   .row_stride = images.stride(axes.height),
                   .column_stride = images.stride(axes.width),
                   .channel_stride = axes.channel < 0 ? 1 : images.stride(axes.channel),
                   .count = images.size(0),
                   .type = type,
                   .out = images};
  if (arguments.indices) {
    const Tensor& indices = *arguments.indices;
    const Shape shape{indices.dim() == 1 ? indices.size(0) : images.size(0)};
    batch.indices = check_integers(indices, shape, subject("indices"), kind, images);
    batch.count = shape[0];
  }
  if (arguments.sizes) {
    batch.sizes =
        check_integers(*arguments.sizes, {batch.count, 2}, subject("sizes"), kind, images);
  }
  const bool has_sizes = arguments.sizes.has_value();
  batch.height = place_size(arguments.height, batch.source_height, has_sizes, "height");
  batch.width = place_size(arguments.width, batch.source_width, has_sizes, "width");
  set_constants(batch, arguments);
  batch.fill = item_of(arguments.pad_value.value_or(0), dtype, subject("pad_value"));

  const Shape shape = chw ? Shape{batch.count, batch.channels, batch.height, batch.width}
                          : Shape{batch.count, batch.height, batch.width, batch.channels};
  batch.bytes = checked_bytes(shape, pixel_size(type), kFunction);
  const Order order = arguments.channels_last ? Order::channels_last : Order::contiguous;
  const Output output = out == nullptr
                            ? make_output(shape, dtype, order, subject("out"), images)
                            : check_output(*out, shape, dtype, chw, subject("out"), kind, images);
  if (out != nullptr) {
    check_no_overlap(*out, images, subject("out"), "images");
    if (batch.indices) check_no_overlap(*out, *batch.indices, subject("out"), "indices");
    if (batch.sizes) check_no_overlap(*out, *batch.sizes, subject("out"), "sizes");
  }
  batch.out = output.tensor;
  batch.layout = chw && output.order == Order::contiguous ? ImageLayout::chw : ImageLayout::hwc;
  return batch;
}

}  // namespace pinfeed::torch_ops
