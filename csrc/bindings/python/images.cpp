// _core.normalize_images and crop_images: convert images to batches.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/file_array.h"
#include "bindings/python/image_crops.h"
#include "bindings/python/image_samples.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/scalar_types.h"
#include "dispatch/dispatch.h"
#include "kernels/image.h"
#include "kernels/resize.h"
#include "runtime/thread_pool.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::Fill;
using kernels::ImageLayout;
using kernels::ImagePadding;
using kernels::ImageResize;
using kernels::ImageSize;
using kernels::ImageSource;
using kernels::ResizedBatch;

// The options of padding.
struct ImagePaddingOptions {
  py::object value = py::none();                            // or a tuple, one per channel
  std::pair<std::int64_t, std::int64_t> multiple_of{1, 1};  // of the height and the width
  bool sizes = false;                                       // whether to return them
  bool mask = false;
  std::pair<std::int64_t, std::int64_t> min_size{0, 0};  // minimum height and width of the batch
};

}  // namespace

template <>
struct Checks<ImagePaddingOptions> {
  static void check(const ImagePaddingOptions& options) {
    if (options.multiple_of.first > 0 && options.multiple_of.second > 0) return;
    throw wrong_value({"ImagePaddingOptions"}, "multiple_of must be positive");
  }
};

// Throws ValueError unless each layout has a height and a width, and each letter once.
template <>
struct Checks<ImageFormat> {
  static void check(const ImageFormat& format) {
    for (const std::string* const layout : {&format.input, &format.output}) {
      std::string letters = *layout;
      std::ranges::sort(letters);
      const bool each_once = std::ranges::adjacent_find(letters) == letters.end();
      const bool are_known = letters.find_first_not_of("CHTW") == std::string::npos;
      if (each_once && are_known && letters.find('H') != std::string::npos &&
          letters.find('W') != std::string::npos) {
        continue;
      }
      throw wrong_value({"ImageFormat"}, "layouts with H, W, and optionally C and T", *layout);
    }
  }
};

namespace {

// How to write a batch of images. `crops`: null for whole images. `padding`: null for images of one
// size.
struct BatchRequest {
  const ImageFormat& format;
  OutputRequest output;
  const std::string& function;
  std::size_t threads;
  Crops* crops = nullptr;
  const ImagePaddingOptions* padding = nullptr;
};

// Each image has a slot of size `slot`; with `padding` it is at the slot's top left.
py::object write_values(Images& images, const BatchRequest& request, const ImageSize& slot,
                        const ImagePadding* padding) {
  const auto height = static_cast<std::int64_t>(slot.height);
  const auto width = static_cast<std::int64_t>(slot.width);
  const std::int64_t channels = images.channels();
  const std::string& axes = request.format.output;
  Shape shape{static_cast<std::int64_t>(images.count())};
  for (const char axis : axes) {
    shape.push_back(axis == 'T'   ? images.frames()
                    : axis == 'C' ? channels
                    : axis == 'H' ? height
                                  : width);
  }
  if ((axes.find('T') == std::string::npos && images.frames() != 1) ||
      (axes.find('C') == std::string::npos && channels != 1)) {
    throw wrong_value({request.function}, "output=\"" + axes + "\" has no axis for " +
                                              std::to_string(images.frames()) + " frames of " +
                                              std::to_string(channels) + " channels");
  }
  const DType dtype = out_dtype(request.format);
  const std::size_t bytes = checked_bytes(shape, dtype, request.function);
  const Scaling scaling(request.format, images.dtype(), channels, images.name());
  if (bytes > 0 && !scaling.is_identity()) images.require_units(request.format);

  // A channels_last tensor: (N, C, H, W) stored as (N, H, W, C).
  const auto item = static_cast<std::int64_t>(dtype.item_size());
  const Shape channels_last{height * width * channels * item, item, width * channels * item,
                            channels * item};
  const Output out = make_output(request.output, shape, dtype, request.function,
                                 axes == "CHW" ? &channels_last : nullptr);
  if (request.output.is_given()) images.require_apart(out, bytes, request.function);
  if (bytes == 0) return out.array;

  images.plan_reads(request.threads);
  std::vector<ImageSource> sources = images.sources();
  std::vector<std::optional<ImageResize>> resizes;
  const kernels::Colors* colors = nullptr;
  if (request.crops != nullptr) {
    request.crops->apply(sources);
    resizes = request.crops->resizes();
    colors = request.crops->colors();
  }
  const kernels::ImageBatch batch{
      .sources = sources.data(),
      .count = sources.size(),
      .height = slot.height,
      .width = slot.width,
      .channels = static_cast<std::size_t>(channels),
      .scale = scaling.scales.data(),
      .bias = scaling.biases.data(),
      .out = out.data,
      .out_layout = axes.back() == 'C' || out.is_alternative ? ImageLayout::hwc : ImageLayout::chw,
      .out_type = pixel_type(dtype),
      .streaming = worth_streaming_pixels(bytes),
      .padding = padding,
      .frames = axes.starts_with("CT") ? static_cast<std::size_t>(images.frames()) : 1,
      .in_type = item_type(images.dtype(), dtype),
  };
  const dispatch::Isa& isa = dispatch::active_isa();
  const std::size_t sample_rows = batch.count / images.count() * batch.height;
  const auto write = [&](std::size_t first, std::size_t last) {
    const std::vector<py::array> held = images.read_late(first, last, sources);
    const std::size_t skipped = first * sample_rows, rows = (last - first) * sample_rows;
    if (resizes.empty() && colors == nullptr) {
      run_rows(rows, bytes / (batch.count * batch.height), request.threads,
               [&](std::size_t begin, std::size_t end) {
                 isa.normalize_images(batch, skipped + begin, skipped + end);
               });
      return;
    }
    const ResizedBatch resized{batch, resizes.empty() ? nullptr : resizes.data(),
                               request.crops->interpolation(), colors, request.crops->in_floats()};
    // Threads that share a resized image both read the rows where they meet, so each gets whole
    // images unless there are fewer images than threads.
    const std::size_t threads = std::max<std::size_t>(request.threads, 1);
    const std::size_t chunk = std::min(batch.height, (rows + threads - 1) / threads);
    const py::gil_scoped_release unlocked;
    runtime::parallel_for_allocating(rows, chunk, threads, [&](std::size_t begin, std::size_t end) {
      kernels::resize_images(*isa.resize, resized, skipped + begin, skipped + end);
    });
  };
  images.write_when_read(images.count(), request.threads, request.function, write);
  images.require_finite(scaling, dtype, out.data, bytes);
  return out.array;
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

// bool of shape (B, height, width): true for pixels of the image.
py::object write_mask(const std::vector<ImageSize>& sizes, const ImageSize& slot,
                      const OutputRequest& request, const std::string& name, std::size_t threads) {
  const Shape shape{static_cast<std::int64_t>(sizes.size()), static_cast<std::int64_t>(slot.height),
                    static_cast<std::int64_t>(slot.width)};
  const Output out = make_output(request, shape, kBool, name);
  run_rows(sizes.size() * slot.height, slot.width, threads,
           [&](std::size_t begin, std::size_t end) {
             kernels::mask_images(sizes.data(), slot.height, slot.width, out.data, begin, end);
           });
  return out.array;
}

// The message names the smaller of the tallest and the widest image, which is the outlier.
void require_no_canvas(const std::vector<ImageSize>& sizes, const ImagePaddingOptions& options,
                       std::int64_t height, std::int64_t width, const std::string& name) {
  const auto own = [](const ImageSize& size) { return pixels(size.height, size.width); };
  const double min_size = pixels(options.min_size.first, options.min_size.second);
  const double largest = own(*std::ranges::max_element(sizes, {}, own));
  if (!is_too_large(pixels(height, width), std::max(min_size, largest))) return;
  const auto tallest = std::ranges::max_element(sizes, {}, &ImageSize::height);
  const auto widest = std::ranges::max_element(sizes, {}, &ImageSize::width);
  const auto image = own(*tallest) < own(*widest) ? tallest : widest;
  throw wrong_value(Subject{name, image - sizes.begin()},
                    "an image of " + size_text(*image) + " would be padded to " +
                        pair_text(height, width) + ", " + kTooManyPixels,
                    "", "leave the sample out, resize it, or pass a smaller multiple_of");
}

// The largest height and width, rounded up to `multiple_of`. Throws ValueError; a message about one
// image names its number.
ImageSize padded_size(const std::vector<ImageSize>& sizes, const ImagePaddingOptions& options,
                      const std::string& name) {
  auto [height, width] = options.min_size;
  for (const ImageSize& size : sizes) {
    height = std::max(height, static_cast<std::int64_t>(size.height));
    width = std::max(width, static_cast<std::int64_t>(size.width));
  }
  height = rounded_up(height, options.multiple_of.first, name);
  width = rounded_up(width, options.multiple_of.second, name);
  require_no_canvas(sizes, options, height, width, name);
  return {static_cast<std::size_t>(height), static_cast<std::size_t>(width)};
}

// One fill for all channels, or one per channel.
std::vector<Fill> padding_fills(const ImagePaddingOptions& options, const Images& images,
                                const BatchRequest& request) {
  const bool is_tuple = py::isinstance<py::tuple>(options.value);
  const py::tuple values = is_tuple ? py::tuple(options.value) : py::make_tuple(options.value);
  if (is_tuple && values.size() != static_cast<std::size_t>(images.channels())) {
    throw wrong_value({request.function}, "pad_value must be one number or one for each of " +
                                              std::to_string(images.channels()) +
                                              " channels, got " + std::to_string(values.size()));
  }
  std::vector<Fill> fills;
  for (const py::handle value : values) {
    fills.push_back(fill_value(value, out_dtype(request.format), request.function + ": pad_value"));
  }
  return fills;
}

// A batch, and its requested further outputs.
struct WrittenImages {
  py::object values;
  py::object sizes = py::none();
  py::object mask = py::none();
  std::shared_ptr<ImageCrops> image_crops = nullptr;  // of crop_images

  py::tuple as_tuple() const { return py::make_tuple(values, sizes, mask, image_crops); }
};

WrittenImages write_batch(Images& images, const BatchRequest& request) {
  const Crops* const crops = request.crops;
  if (request.padding == nullptr) {
    const ImageSize slot = crops == nullptr ? images.size_of(0) : crops->common_size();
    return {write_values(images, request, slot, nullptr)};
  }
  images.require_some();
  const ImagePaddingOptions& options = *request.padding;
  const std::string& name = request.function;
  const std::vector<ImageSize> sizes = crops == nullptr ? images.sizes() : crops->sizes();
  const ImageSize slot = padded_size(sizes, options, name);
  std::vector<ImageSize> frame_sizes;
  for (const ImageSize& size : sizes) {
    frame_sizes.insert(frame_sizes.end(), static_cast<std::size_t>(images.frames()), size);
  }
  const std::vector<Fill> fills = padding_fills(options, images, request);
  const ImagePadding padding{frame_sizes.data(), fills.data(), fills.size() > 1};
  WrittenImages batch{write_values(images, request, slot, &padding)};
  if (options.sizes) batch.sizes = write_sizes(sizes, request.output, name);
  if (options.mask) batch.mask = write_mask(sizes, slot, request.output, name, request.threads);
  return batch;
}

// Images of one size or, with padding, of any size, each at the top left of its slot.
py::tuple normalize_images(py::object images, py::object indices, const ImageFormat& format,
                           py::object target, const std::string& function, std::size_t threads,
                           const std::string& argument,
                           const std::optional<ImagePaddingOptions>& padding) {
  const std::string name = named(function, argument);
  Images checked(std::move(images), std::move(indices), format, padding.has_value(), name);
  const OutputRequest output(std::move(target), checked.is_tensor());
  return write_batch(checked, {.format = format,
                               .output = output,
                               .function = function,
                               .threads = threads,
                               .padding = padding ? &*padding : nullptr})
      .as_tuple();
}

// A batch of crops of images of any sizes: the crops have one size, or are padded. `image_crops`:
// null to draw them; messages then name the entry `entry`. `rows`: the number of each image's crop;
// empty if image i has crop i.
py::tuple crop_images(py::object images, py::object indices, const ImageFormat& format,
                      const AugmentOptions& options, py::object target, const std::string& name,
                      std::size_t threads, std::uint64_t key, const Integers& samples,
                      const std::string& entry, const std::optional<ObjectBoxes>& objects,
                      std::shared_ptr<ImageCrops> image_crops, std::vector<std::size_t> rows,
                      const std::optional<ImagePaddingOptions>& padding) {
  Images checked(std::move(images), std::move(indices), format, true, name);
  checked.require_some();
  const Draw draw{key, samples, objects ? &*objects : nullptr};
  if (!image_crops) image_crops = find_crops(checked, options, draw, entry);
  Crops crops(checked, options, draw, image_crops, std::move(rows));
  WrittenImages batch = write_batch(checked, {.format = format,
                                              .output = OutputRequest(std::move(target), true),
                                              .function = name,
                                              .threads = threads,
                                              .crops = &crops,
                                              .padding = padding ? &*padding : nullptr});
  batch.image_crops = std::move(image_crops);
  return batch.as_tuple();
}

}  // namespace

void register_images(py::module_& m) {
  register_augment_options(m);
  bind_options<ImageFormat, &ImageFormat::mean, &ImageFormat::std, &ImageFormat::scale,
               &ImageFormat::input, &ImageFormat::is_guess, &ImageFormat::remembers,
               &ImageFormat::output, &ImageFormat::dtype>(m, "ImageFormat")
      .def_readonly("output", &ImageFormat::output);
  bind_options<ImagePaddingOptions, &ImagePaddingOptions::value, &ImagePaddingOptions::multiple_of,
               &ImagePaddingOptions::sizes, &ImagePaddingOptions::mask,
               &ImagePaddingOptions::min_size>(m, "ImagePaddingOptions");
  m.def("normalize_images", &normalize_images, py::arg("images"), py::arg("indices"),
        py::arg("format"), py::arg("target"), py::arg("name"), py::arg("threads"),
        py::arg("argument") = "", py::arg("padding") = py::none());
  m.def("crop_images", &crop_images, py::arg("images"), py::arg("indices"), py::arg("format"),
        py::arg("options"), py::arg("target"), py::arg("name"), py::arg("threads"), py::kw_only(),
        py::arg("key"), py::arg("samples"), py::arg("entry"), py::arg("objects") = py::none(),
        py::arg("crops") = py::none(), py::arg("rows") = std::vector<std::size_t>(),
        py::arg("padding") = py::none());
}

}  // namespace pinfeed::bindings
