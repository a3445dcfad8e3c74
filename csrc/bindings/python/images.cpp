// _core.normalize_images, _core.pad_images and _core.crop_images: everything that makes pixels.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/python/file_array.h"
#include "bindings/python/fill_value.h"
#include "bindings/python/module.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/samples.h"
#include "dispatch/dispatch.h"
#include "kernels/geometry.h"
#include "kernels/image.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::Border;
using kernels::GeometryStep;
using kernels::ImageLayout;
using kernels::ImagePadding;
using kernels::ImageSize;
using kernels::ImageSource;
using kernels::ImageWindow;
using kernels::Misfit;
using kernels::PixelType;
using kernels::Window;
using Constants = py::array_t<float, py::array::c_style>;

// Which axes of a sample are what; a grey image has no channel axis.
struct Axes {
  const char* text;
  const char* batch_text;
  int height, width, channel;
};

Axes source_axes(const std::string& layout) {
  if (layout == "HWC" || layout == "HWC?") return {"(H, W, C)", "(N, H, W, C)", 0, 1, 2};
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

constexpr const char* kAlike = "; PIL's .convert(\"RGB\") gives all images the same channels";

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

// The images of a batch: uint8, with the layout's axes, one number of channels and, unless they
// may be of any size, one size.
class Images {
 public:
  Images(py::object images, py::object indices, const std::string& layout, bool any_size,
         const std::string& name)
      : name_(name),
        axes_(source_axes(layout)),
        samples_(std::move(images), py::none(), std::move(indices), name, Common::rank) {
    require_layout();
    if (layout == "HWC?") require_channels_last();
    require_common(any_size);
  }

  const std::string& name() const { return name_; }
  std::size_t count() const { return samples_.count(); }
  std::int64_t channels() const { return size(0, axes_.channel); }
  std::int64_t height(std::size_t image) const { return size(image, axes_.height); }
  std::int64_t width(std::size_t image) const { return size(image, axes_.width); }
  bool is_tensor() const { return samples_.is_tensor(); }
  void require_apart(const Output& out, std::size_t bytes, const std::string& function) const {
    samples_.require_apart(out, bytes, function);
  }
  FileReads* reads() const { return samples_.reads(); }

  // Before sources() are asked for.
  void plan_reads(std::size_t threads) { samples_.plan_reads(false, threads); }

  std::vector<ImageSource> sources() const {
    std::vector<ImageSource> sources(count());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const std::int64_t* const strides = samples_.strides(i);
      sources[i] = {
          .data = static_cast<const std::uint8_t*>(samples_.data()[i]),
          .row_stride = strides[axes_.height],
          .column_stride = strides[axes_.width],
          .channel_stride = axes_.channel < 0 ? 1 : strides[axes_.channel],
      };
    }
    return sources;
  }

  std::vector<ImageSize> sizes() const {
    std::vector<ImageSize> sizes(count());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = {static_cast<std::size_t>(height(i)), static_cast<std::size_t>(width(i))};
    }
    return sizes;
  }

 private:
  std::int64_t size(std::size_t image, int axis) const {
    return axis < 0 ? 1 : samples_.shape(image)[static_cast<std::size_t>(axis)];
  }

  void require_layout() const {
    const std::string wanted = std::string("uint8 with shape ") +
                               (samples_.are_all_rows() ? axes_.batch_text : axes_.text) +
                               ", got " + samples_.dtype().name() + " " +
                               shape_text(samples_.given_shape());
    // Separate samples agree with the first, so what does not fit is the first one.
    const std::string subject = Subject{name_, samples_.are_separate() ? 0 : -1}.text();
    if (samples_.dtype() != kUint8) {
      throw py::type_error(subject + " must be " + wanted + hint_for(samples_.dtype()));
    }
    const std::size_t axis_count = axes_.channel < 0 ? 2 : 3;
    if (samples_.shape().size() != axis_count) {
      std::string hint;
      if (axis_count == 3 && samples_.shape().size() == 2) {
        hint = samples_.are_all_rows()
                   ? "; a single image needs images[None], grey images input=\"NHW\""
                   : "; for grey images say input=\"HW\"; among others, PIL's .convert(\"RGB\") "
                     "makes them alike";
      }
      throw py::value_error(subject + " must be " + wanted + hint);
    }
    if (count() == 0) throw py::value_error(name_ + ": expected at least one image, got none");
  }

  // Values that a cast to bytes would destroy need another way out.
  static std::string hint_for(DType dtype) {
    if (dtype.code == dlpack::TypeCode::floating || dtype.code == dlpack::TypeCode::bfloat) {
      return "; leave out ToTensor() or ToDtype(scale=True), which make floats of bytes, or take "
             "Stack() for values that are ready";
    }
    if (dtype.code == dlpack::TypeCode::unsigned_int) {
      return "; Stack(torch.float32) takes images of more than 8 bits";
    }
    if (dtype == kBool) return "; convert with .astype(np.uint8) * 255 or .to(torch.uint8) * 255";
    return "; where all values are 0..255, convert with .astype(np.uint8) or .to(torch.uint8)";
  }

  // A layout that nobody asked for must not make channels of columns.
  void require_channels_last() const {
    const std::int64_t first = height(0);
    if (channels() <= 4 || width(0) <= 4 || (first != 1 && first != 3 && first != 4)) return;
    throw py::value_error(
        Subject{name_, samples_.are_separate() ? 0 : -1}.text() +
        ": expected images of shape (H, W, C), got " + shape_text(samples_.shape()) +
        ", as (C, H, W) has it; say input=\"CHW\", or input=\"HWC\" if there are " +
        std::to_string(channels()) + " channels");
  }

  void require_common(bool any_size) const {
    if (!samples_.are_separate()) return;
    for (std::size_t i = 1; i < count(); ++i) {
      const bool same_channels = size(i, axes_.channel) == channels();
      const bool same_size = height(i) == height(0) && width(i) == width(0);
      if (same_channels && (same_size || any_size)) continue;
      const std::string subject = Subject{name_, static_cast<std::int64_t>(i)}.text();
      const std::string shape = shape_text(samples_.shape(i));
      if (any_size) {
        throw py::value_error(subject + ": expected " + std::to_string(channels()) +
                              " channels as in sample 0, got shape " + shape + kAlike);
      }
      throw py::value_error(
          subject + ": expected shape " + shape_text(samples_.shape()) + " as in sample 0, got " +
          shape + (same_channels ? "; pad_value pads images of different sizes" : kAlike));
    }
  }

  const std::string& name_;
  Axes axes_;
  Samples samples_;
};

// What is seen of each image, in this order: the crops and flips; what stands beyond the image's
// edges; for a constant border a value for all channels or one for each; the key and the samples
// that random numbers follow from; and None, or the sizes of the images of another leaf, which must
// be the same, and its name.
using Integers = py::array_t<std::int64_t, py::array::c_style>;
using Crop = std::tuple<py::tuple, std::string, std::vector<std::uint8_t>, std::uint64_t, Integers,
                        std::optional<std::tuple<Integers, std::string>>>;

// A step: its kind, height and width, the padding above, left, below, right, whether it pads what
// is too small, its probability.
GeometryStep geometry_step(py::handle given) {
  using Kind = GeometryStep::Kind;
  using Fields = std::tuple<std::string, std::array<std::int64_t, 2>, std::array<std::int64_t, 4>,
                            bool, double>;
  const auto [name, size, padding, pad_if_needed, probability] = given.cast<Fields>();
  const Kind kind = name == "random_crop"   ? Kind::random_crop
                    : name == "center_crop" ? Kind::center_crop
                    : name == "flip_rows"   ? Kind::flip_rows
                                            : Kind::flip_columns;
  return {kind,       size[0],    size[1],       padding[0], padding[1],
          padding[2], padding[3], pad_if_needed, probability};
}

Border border_named(const std::string& name) {
  if (name == "constant") return Border::constant;
  if (name == "edge") return Border::edge;
  if (name == "reflect") return Border::reflect;
  throw py::value_error("unknown border " + name);
}

// The windows of a batch's images, all of one size.
class Windows {
 public:
  Windows(const Images& images, const Crop& crop) : images_(images) {
    const auto& [steps, border, fill, key, samples, other_leaf] = crop;
    border_ = border_named(border);
    const auto channels = static_cast<std::size_t>(images.channels());
    fill_ = fill.size() == 1 ? std::vector<std::uint8_t>(channels, fill[0]) : fill;
    if (fill_.size() != channels) {
      throw py::value_error(images.name() + ": fill must be one number or one for each of " +
                            std::to_string(channels) + " channels, got " +
                            std::to_string(fill.size()));
    }
    if (static_cast<std::size_t>(samples.size()) != images.count()) {
      throw py::value_error(images.name() + ": expected a number for each sample");
    }
    sizes_ = Integers(std::vector<py::ssize_t>{samples.size(), 2});
    for (std::size_t i = 0; i < images.count(); ++i) {
      sizes_.mutable_data()[2 * i] = images.height(i);
      sizes_.mutable_data()[2 * i + 1] = images.width(i);
    }
    if (other_leaf) require_sizes(std::get<0>(*other_leaf), std::get<1>(*other_leaf));
    std::vector<GeometryStep> geometry;
    for (const py::handle step : steps) geometry.push_back(geometry_step(step));
    windows_.resize(images.count());
    for (std::size_t i = 0; i < windows_.size(); ++i) {
      require_fit(i, kernels::find_window(geometry, border_, images.height(i), images.width(i), key,
                                          samples.data()[i], windows_[i]));
    }
  }

  std::int64_t height() const { return windows_[0].height; }
  std::int64_t width() const { return windows_[0].width; }
  py::object sizes() const { return sizes_; }

  // Makes windows of the images that lie there.
  void apply(std::vector<ImageSource>& sources) {
    beyond_.reserve(sources.size());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      ImageSource& source = sources[i];
      const std::int64_t rows = images_.height(i), columns = images_.width(i);
      auto [top, left, height, width, flipped_rows, flipped_columns] = windows_[i];
      if (flipped_rows && rows > 0) {
        source.data += (rows - 1) * source.row_stride;
        source.row_stride = -source.row_stride;
        top = rows - top - height;
      }
      if (flipped_columns && columns > 0) {
        source.data += (columns - 1) * source.column_stride;
        source.column_stride = -source.column_stride;
        left = columns - left - width;
      }
      if (top >= 0 && left >= 0 && top + height <= rows && left + width <= columns) {
        source.data += top * source.row_stride + left * source.column_stride;
      } else {
        source.window = &beyond_.emplace_back(ImageWindow{top, left, static_cast<std::size_t>(rows),
                                                          static_cast<std::size_t>(columns),
                                                          border_, fill_.data()});
      }
    }
  }

 private:
  [[noreturn]] void fail(std::size_t image, const std::string& text) const {
    const auto position = static_cast<std::int64_t>(image);
    throw py::value_error(Subject{images_.name(), position}.text() + ": " + text);
  }

  static std::string pair_text(std::int64_t first, std::int64_t second) {
    const std::int64_t pair[] = {first, second};
    return shape_text(pair);
  }

  // A window is shared by images that lie upon each other.
  void require_sizes(const Integers& others, const std::string& leaf) const {
    for (std::size_t i = 0; others.size() == sizes_.size() && i < images_.count(); ++i) {
      const std::int64_t* const other = others.data() + 2 * i;
      if (other[0] == images_.height(i) && other[1] == images_.width(i)) continue;
      fail(i, "expected an image of " + pair_text(other[0], other[1]) + " as in " + leaf +
                  ", with which it shares augment, got " +
                  pair_text(images_.height(i), images_.width(i)) +
                  "; where images don't belong together, make a second geometry");
    }
  }

  void require_fit(std::size_t image, Misfit misfit) const {
    const std::string subject =
        "an image of " + pair_text(images_.height(image), images_.width(image));
    if (misfit == Misfit::too_small) {
      fail(image,
           subject + " is too small for RandomCrop; pass pad_if_needed=True, or more padding");
    }
    if (misfit == Misfit::no_pixels) {
      fail(image, subject + " has no pixel that could be repeated; take padding_mode=\"constant\"");
    }
    if (misfit == Misfit::too_few_to_mirror) {
      fail(image, subject +
                      " has too few pixels for padding_mode=\"reflect\", which adds at most "
                      "one less than there are; take padding_mode=\"edge\"");
    }
    const Window& window = windows_[image];
    if (window.height != height() || window.width != width()) {
      fail(image, "expected images of one size, or a crop to one, got " +
                      pair_text(height(), width()) + " of sample 0 and " +
                      pair_text(window.height, window.width));
    }
  }

  const Images& images_;
  Border border_;
  std::vector<std::uint8_t> fill_;
  Integers sizes_;
  std::vector<Window> windows_;
  std::vector<ImageWindow> beyond_;
};

// What becomes of images: a batch in which each has a place of height x width.
struct BatchRequest {
  const Constants& scale;
  const Constants& bias;
  bool chw;
  PixelType type;
  std::int64_t height;
  std::int64_t width;
  const ImagePadding* padding;
  Windows* windows;
  OutputRequest output;
  const std::string& function;
  std::size_t threads;
};

py::object write_batch(Images& images, const BatchRequest& request) {
  const std::int64_t height = request.height, width = request.width, channels = images.channels();
  const auto count = static_cast<std::int64_t>(images.count());
  const Shape shape =
      request.chw ? Shape{count, channels, height, width} : Shape{count, height, width, channels};
  const DType dtype = dtype_of(request.type);
  const std::size_t bytes = checked_bytes(shape, dtype, request.function);
  const std::vector<float> scales = per_channel(request.scale, channels, images.name());
  const std::vector<float> biases = per_channel(request.bias, channels, images.name());

  // A channels_last tensor: (N, C, H, W) that lies in memory as (N, H, W, C).
  const auto item = static_cast<std::int64_t>(dtype.item_size());
  const Shape channels_last{height * width * channels * item, item, width * channels * item,
                            channels * item};
  bool use_channels_last = false;
  const Output out = make_output(request.output, shape, dtype, request.function,
                                 request.chw ? &channels_last : nullptr, &use_channels_last);
  if (request.output.is_given()) images.require_apart(out, bytes, request.function);

  if (bytes > 0) images.plan_reads(request.threads);
  std::vector<ImageSource> sources = images.sources();
  if (request.windows != nullptr) request.windows->apply(sources);
  const kernels::ImageBatch batch{
      .sources = sources.data(),
      .count = sources.size(),
      .height = static_cast<std::size_t>(height),
      .width = static_cast<std::size_t>(width),
      .channels = static_cast<std::size_t>(channels),
      .scale = scales.data(),
      .bias = biases.data(),
      .out = out.data,
      .out_layout = request.chw && !use_channels_last ? ImageLayout::chw : ImageLayout::hwc,
      .out_type = request.type,
      .streaming = worth_streaming(bytes),
      .padding = request.padding,
  };
  if (bytes > 0) {
    const std::size_t rows = batch.count * batch.height, row_bytes = bytes / rows;
    const auto write = [&](std::size_t begin, std::size_t end) {
      dispatch::active_isa().normalize_images(batch, begin, end);
    };
    if (FileReads* const reads = images.reads()) {
      write_when_read(*reads, request.threads, [&](std::size_t first, std::size_t last) {
        const std::size_t skipped = first * batch.height;
        run_rows(
            (last - first) * batch.height, row_bytes, request.threads,
            [&](std::size_t begin, std::size_t end) { write(skipped + begin, skipped + end); });
      });
    } else {
      run_rows(rows, row_bytes, request.threads, write);
    }
  }
  return out.array;
}

// What becomes of images, in this order: scale, bias, layout, layout of the
// output, dtype.
using ImageFormat = std::tuple<Constants, Constants, std::string, std::string, std::string>;

py::object normalize_images(py::object images, py::object indices, const ImageFormat& format,
                            py::object target, const std::string& name, std::size_t threads) {
  const auto& [scale, bias, layout, out_layout, dtype] = format;
  const std::string function = function_of(name);
  Images checked(std::move(images), std::move(indices), layout, false, name);
  return write_batch(checked, {.scale = scale,
                               .bias = bias,
                               .chw = out_layout == "CHW",
                               .type = pixel_type(dtype),
                               .height = checked.height(0),
                               .width = checked.width(0),
                               .padding = nullptr,
                               .windows = nullptr,
                               .output = OutputRequest(std::move(target), checked.is_tensor()),
                               .function = function,
                               .threads = threads});
}

// int64 of shape (B, 2): the height and width of each image.
py::object write_sizes(const std::vector<ImageSize>& sizes, const OutputRequest& request,
                       const std::string& name) {
  const Output out =
      make_output(request, {static_cast<std::int64_t>(sizes.size()), 2}, kInt64, name);
  auto* to = reinterpret_cast<std::int64_t*>(out.data);
  for (const ImageSize& size : sizes) {
    *to++ = static_cast<std::int64_t>(size.height);
    *to++ = static_cast<std::int64_t>(size.width);
  }
  return out.array;
}

// bool of shape (B, height, width): true where an image is.
py::object write_mask(const std::vector<ImageSize>& sizes, std::int64_t height, std::int64_t width,
                      const OutputRequest& request, const std::string& name, std::size_t threads) {
  const Shape shape{static_cast<std::int64_t>(sizes.size()), height, width};
  checked_bytes(shape, kBool, name);
  const Output out = make_output(request, shape, kBool, name);
  const auto rows = static_cast<std::size_t>(height), columns = static_cast<std::size_t>(width);
  run_rows(sizes.size() * rows, columns, threads, [&](std::size_t begin, std::size_t end) {
    kernels::mask_images(sizes.data(), rows, columns, out.data, begin, end);
  });
  return out.array;
}

// How images are padded, in this order: pad_value, multiple_of, whether
// to return sizes and a mask.
using PaddingFormat = std::tuple<py::object, std::pair<std::int64_t, std::int64_t>, bool, bool>;

// Images of any sizes, each at the top left of a place as large as the largest height and width,
// rounded up to `multiple_of`. Returns the batch, and its sizes and mask or None.
py::tuple pad_images(py::object images, py::object indices, const ImageFormat& format,
                     const PaddingFormat& padded, py::object target, const std::string& name,
                     std::size_t threads) {
  const auto& [scale, bias, layout, out_layout, dtype] = format;
  const auto& [pad_value, multiple_of, with_sizes, with_mask] = padded;
  Images checked(std::move(images), std::move(indices), layout, true, name);
  std::int64_t height = 0, width = 0;
  for (std::size_t i = 0; i < checked.count(); ++i) {
    height = std::max(height, checked.height(i));
    width = std::max(width, checked.width(i));
  }
  height = rounded_up(height, multiple_of.first, name);
  width = rounded_up(width, multiple_of.second, name);

  const PixelType type = pixel_type(dtype);
  const std::vector<ImageSize> sizes = checked.sizes();
  const ImagePadding padding{sizes.data(),
                             fill_value(pad_value, dtype_of(type), name + ": pad_value")};
  const OutputRequest request(std::move(target), true);
  py::object batch = write_batch(checked, {.scale = scale,
                                           .bias = bias,
                                           .chw = out_layout == "CHW",
                                           .type = type,
                                           .height = height,
                                           .width = width,
                                           .padding = &padding,
                                           .windows = nullptr,
                                           .output = request,
                                           .function = name,
                                           .threads = threads});
  py::object sizes_array = py::none(), mask = py::none();
  if (with_sizes) sizes_array = write_sizes(sizes, request, name);
  if (with_mask) mask = write_mask(sizes, height, width, request, name, threads);
  return py::make_tuple(batch, sizes_array, mask);
}

// Windows of images of any sizes, all of one size. Returns the batch, and the images' sizes.
py::tuple crop_images(py::object images, py::object indices, const ImageFormat& format,
                      const Crop& crop, py::object target, const std::string& name,
                      std::size_t threads) {
  const auto& [scale, bias, layout, out_layout, dtype] = format;
  Images checked(std::move(images), std::move(indices), layout, true, name);
  Windows windows(checked, crop);
  py::object batch = write_batch(checked, {.scale = scale,
                                           .bias = bias,
                                           .chw = out_layout == "CHW",
                                           .type = pixel_type(dtype),
                                           .height = windows.height(),
                                           .width = windows.width(),
                                           .padding = nullptr,
                                           .windows = &windows,
                                           .output = OutputRequest(std::move(target), true),
                                           .function = name,
                                           .threads = threads});
  return py::make_tuple(batch, windows.sizes());
}

}  // namespace

void register_images(py::module_& m) {
  m.def("normalize_images", &normalize_images, py::arg("images"), py::arg("indices"),
        py::arg("format"), py::arg("target"), py::arg("name"), py::arg("threads"));
  m.def("pad_images", &pad_images, py::arg("images"), py::arg("indices"), py::arg("format"),
        py::arg("padding"), py::arg("target"), py::arg("name"), py::arg("threads"));
  m.def("crop_images", &crop_images, py::arg("images"), py::arg("indices"), py::arg("format"),
        py::arg("crop"), py::arg("target"), py::arg("name"), py::arg("threads"));
}

}  // namespace pinfeed::bindings
