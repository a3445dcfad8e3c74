// _core.normalize_images, _core.pad_images and _core.view_images: everything that makes pixels.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/python/file_array.h"
#include "bindings/python/fill_value.h"
#include "bindings/python/image_format.h"
#include "bindings/python/image_samples.h"
#include "bindings/python/image_windows.h"
#include "bindings/python/module.h"
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

using kernels::ImageLayout;
using kernels::ImagePadding;
using kernels::ImageResize;
using kernels::ImageSize;
using kernels::ImageSource;
using kernels::PixelType;
using kernels::ResizedBatch;
using kernels::ScalarType;

// What becomes of images: a batch in which each has a place of height x width.
struct BatchRequest {
  const ImageFormat& format;
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
  const std::string& axes = request.format.output;
  Shape shape{static_cast<std::int64_t>(images.count())};
  for (const char axis : axes) {
    shape.push_back(axis == 'T'   ? images.frames()
                    : axis == 'C' ? channels
                    : axis == 'H' ? height
                                  : width);
  }
  const DType dtype = out_dtype(request.format);
  const std::size_t bytes = checked_bytes(shape, dtype, request.function);
  const Scaling scaling(request.format, images.dtype(), channels, images.name());
  const bool guessed = !request.format.scale && is_floating(images.dtype());
  if (guessed && bytes > 0 && !scaling.is_identity()) images.require_fractions();

  // A channels_last tensor: (N, C, H, W) that lies in memory as (N, H, W, C).
  const auto item = static_cast<std::int64_t>(dtype.item_size());
  const Shape channels_last{height * width * channels * item, item, width * channels * item,
                            channels * item};
  bool use_channels_last = false;
  const Output out = make_output(request.output, shape, dtype, request.function,
                                 axes == "CHW" ? &channels_last : nullptr, &use_channels_last);
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
      .scale = scaling.scales.data(),
      .bias = scaling.biases.data(),
      .out = out.data,
      .out_layout = axes.back() == 'C' || use_channels_last ? ImageLayout::hwc : ImageLayout::chw,
      .out_type = pixel_type(dtype),
      .streaming = worth_streaming(bytes),
      .padding = request.padding,
      .frames = axes.starts_with("CT") ? static_cast<std::size_t>(images.frames()) : 1,
      .in_type = item_type(images.dtype(), dtype, images.name()),
  };
  std::vector<std::optional<ImageResize>> resizes;
  const kernels::Colors* colors = nullptr;
  if (request.windows != nullptr) {
    resizes = request.windows->resizes();
    colors = request.windows->colors();
  }
  if (bytes > 0) {
    const dispatch::Isa& isa = dispatch::active_isa();
    const std::size_t sample_rows = batch.count / images.count() * batch.height;
    const auto write = [&](std::size_t first, std::size_t last) {
      const std::size_t skipped = first * sample_rows, rows = (last - first) * sample_rows;
      if (resizes.empty() && colors == nullptr) {
        run_rows(rows, bytes / (batch.count * batch.height), request.threads,
                 [&](std::size_t begin, std::size_t end) {
                   isa.normalize_images(batch, skipped + begin, skipped + end);
                 });
        return;
      }
      const ResizedBatch resized{batch, resizes.empty() ? nullptr : resizes.data(),
                                 request.windows->interpolation(), colors,
                                 request.windows->in_floats()};
      // Threads that share an image both read the rows where they meet: they get whole ones, unless
      // there are fewer images than threads.
      const std::size_t threads = std::max<std::size_t>(request.threads, 1);
      const std::size_t chunk = std::min(batch.height, (rows + threads - 1) / threads);
      const py::gil_scoped_release unlocked;
      runtime::parallel_for_allocating(
          rows, chunk, threads, [&](std::size_t begin, std::size_t end) {
            kernels::resize_images(*isa.resize, resized, skipped + begin, skipped + end);
          });
    };
    try {
      if (FileReads* const reads = images.reads()) {
        write_when_read(*reads, request.threads, write);
      } else {
        write(0, images.count());
      }
    } catch (const std::bad_alloc&) {
      const std::string message =
          request.function + ": no memory for what is kept beside the batch";
      PyErr_SetString(PyExc_MemoryError, message.c_str());
      throw py::error_already_set();
    }
  }
  return out.array;
}

py::object normalize_images(py::object images, py::object indices, const ImageFormat& format,
                            py::object target, const std::string& function, std::size_t threads,
                            const std::string& argument) {
  const std::string name = named(function, argument);
  Images checked(std::move(images), std::move(indices), format.input, out_dtype(format), false,
                 name);
  return write_batch(checked, {.format = format,
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

// How images are padded.
struct ImagePaddingOptions {
  py::object value = py::none();
  std::pair<std::int64_t, std::int64_t> multiple_of{1, 1};  // of the height and the width
  bool sizes = false;                                       // whether to return them
  bool mask = false;
  std::pair<std::int64_t, std::int64_t> least{0, 0};  // height and width of the batch
};

// The places of images of any sizes: each at the top left of one as large as the largest height and
// width, rounded up to `multiple_of`.
class Places {
 public:
  // `frames`: images of each size, the frames of a clip. Throws ValueError; a message about one
  // image says which.
  Places(std::vector<ImageSize> sizes, std::size_t frames, const ImagePaddingOptions& options,
         DType dtype, const std::string& name)
      : sizes_(std::move(sizes)), options_(options) {
    std::tie(height_, width_) = options.least;
    for (const ImageSize& size : sizes_) {
      height_ = std::max(height_, static_cast<std::int64_t>(size.height));
      width_ = std::max(width_, static_cast<std::int64_t>(size.width));
      frame_sizes_.insert(frame_sizes_.end(), frames, size);
    }
    height_ = rounded_up(height_, options.multiple_of.first, name);
    width_ = rounded_up(width_, options.multiple_of.second, name);
    require_no_canvas(name);
    padding_ = {frame_sizes_.data(), fill_value(options.value, dtype, name + ": pad_value")};
  }
  Places(const Places&) = delete;

  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }
  const ImagePadding* padding() const { return &padding_; }

  // The sizes and the mask of the batch, or None.
  std::pair<py::object, py::object> beside(const OutputRequest& request, const std::string& name,
                                           std::size_t threads) const {
    py::object sizes = py::none(), mask = py::none();
    if (options_.sizes) sizes = write_sizes(sizes_, request, name);
    if (options_.mask) mask = write_mask(sizes_, height_, width_, request, name, threads);
    return {sizes, mask};
  }

 private:
  // Of the tallest and the widest image, a message says the smaller one: it stands out.
  void require_no_canvas(const std::string& name) const {
    const auto own = [](const ImageSize& size) { return pixels(size.height, size.width); };
    const double least = pixels(options_.least.first, options_.least.second);
    const double largest = own(*std::ranges::max_element(sizes_, {}, own));
    if (!is_too_large(pixels(height_, width_), std::max(least, largest))) return;
    const auto tallest = std::ranges::max_element(sizes_, {}, &ImageSize::height);
    const auto widest = std::ranges::max_element(sizes_, {}, &ImageSize::width);
    const auto image = own(*tallest) < own(*widest) ? tallest : widest;
    const std::int64_t size[] = {static_cast<std::int64_t>(image->height),
                                 static_cast<std::int64_t>(image->width)};
    const std::int64_t padded[] = {height_, width_};
    throw wrong_value(Subject{name, image - sizes_.begin()},
                      "an image of " + shape_text(size) + " would be padded to " +
                          shape_text(padded) + ", " + kTooManyPixels,
                      "", "leave the sample out, resize it, or take a smaller multiple_of");
  }

  std::vector<ImageSize> sizes_, frame_sizes_;
  const ImagePaddingOptions& options_;
  ImagePadding padding_{};
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
};

// Images of any sizes, each at the top left of its place. Returns the batch, and its sizes and mask
// or None.
py::tuple pad_images(py::object images, py::object indices, const ImageFormat& format,
                     const ImagePaddingOptions& options, py::object target, const std::string& name,
                     std::size_t threads) {
  const DType dtype = out_dtype(format);
  Images checked(std::move(images), std::move(indices), format.input, dtype, true, name);
  const Places places(checked.sizes(), static_cast<std::size_t>(checked.frames()), options, dtype,
                      name);
  const OutputRequest request(std::move(target), true);
  const py::object batch = write_batch(checked, {.format = format,
                                                 .height = places.height(),
                                                 .width = places.width(),
                                                 .padding = places.padding(),
                                                 .windows = nullptr,
                                                 .output = request,
                                                 .function = name,
                                                 .threads = threads});
  const auto [sizes, mask] = places.beside(request, name, threads);
  return py::make_tuple(batch, sizes, mask);
}

// What is seen of images of any sizes: of one size, or padded. `views`: none to find them, for the
// leaf of which messages say `leaf`. `rows`: which of the views is that of each image, if they are
// not as many. Returns the batch, its sizes and mask or None, and the views.
py::tuple view_images(py::object images, py::object indices, const ImageFormat& format,
                      const AugmentOptions& options, py::object target, const std::string& name,
                      std::size_t threads, std::uint64_t key, const Integers& samples,
                      const std::string& leaf, const std::optional<ObjectBoxes>& objects,
                      std::shared_ptr<ImageViews> views, std::vector<std::size_t> rows,
                      const std::optional<ImagePaddingOptions>& padding) {
  const DType dtype = out_dtype(format);
  Images checked(std::move(images), std::move(indices), format.input, dtype, true, name);
  const Draw draw{key, samples, objects};
  if (!views) views = find_views(checked, options, draw, leaf);
  Windows windows(checked, options, draw, views, std::move(rows));
  const OutputRequest request(std::move(target), true);
  BatchRequest to{.format = format,
                  .height = 0,
                  .width = 0,
                  .padding = nullptr,
                  .windows = &windows,
                  .output = request,
                  .function = name,
                  .threads = threads};
  if (!padding) {
    const ImageSize size = windows.common_size();
    to.height = static_cast<std::int64_t>(size.height);
    to.width = static_cast<std::int64_t>(size.width);
    return py::make_tuple(write_batch(checked, to), py::none(), py::none(), views);
  }
  const Places places(windows.sizes(), static_cast<std::size_t>(checked.frames()), *padding, dtype,
                      name);
  to.height = places.height();
  to.width = places.width();
  to.padding = places.padding();
  const py::object batch = write_batch(checked, to);
  const auto [sizes, mask] = places.beside(request, name, threads);
  return py::make_tuple(batch, sizes, mask, views);
}

// Windows of images, which are given; resized where they have another size.
py::object normalize_windows(py::object images, const ImageFormat& format, py::object target,
                             const std::string& function, std::size_t threads,
                             const std::string& argument,
                             const py::array_t<double, py::array::c_style>& given,
                             std::array<std::int64_t, 2> size, kernels::Interpolation interpolation,
                             bool in_floats) {
  const std::string name = named(function, argument);
  Images checked(std::move(images), py::none(), format.input, out_dtype(format), false, name);
  Windows windows(checked, GivenWindows{given, size, interpolation, in_floats});
  return write_batch(checked, {.format = format,
                               .height = size[0],
                               .width = size[1],
                               .padding = nullptr,
                               .windows = &windows,
                               .output = OutputRequest(std::move(target), checked.is_tensor()),
                               .function = function,
                               .threads = threads});
}

}  // namespace

void register_images(py::module_& m) {
  register_augment_options(m);
  bind_options(m, "ImageFormat", Keyword{"mean", &ImageFormat::mean},
               Keyword{"std", &ImageFormat::std}, Keyword{"scale", &ImageFormat::scale},
               Keyword{"input", &ImageFormat::input}, Keyword{"output", &ImageFormat::output},
               Keyword{"dtype", &ImageFormat::dtype})
      .def_readonly("output", &ImageFormat::output);
  bind_options(m, "ImagePaddingOptions", Keyword{"value", &ImagePaddingOptions::value},
               Keyword{"multiple_of", &ImagePaddingOptions::multiple_of},
               Keyword{"sizes", &ImagePaddingOptions::sizes},
               Keyword{"mask", &ImagePaddingOptions::mask},
               Keyword{"least", &ImagePaddingOptions::least});
  m.def("normalize_images", &normalize_images, py::arg("images"), py::arg("indices"),
        py::arg("format"), py::arg("target"), py::arg("name"), py::arg("threads"),
        py::arg("argument") = "");
  m.def("pad_images", &pad_images, py::arg("images"), py::arg("indices"), py::arg("format"),
        py::arg("padding"), py::arg("target"), py::arg("name"), py::arg("threads"));
  m.def("view_images", &view_images, py::arg("images"), py::arg("indices"), py::arg("format"),
        py::arg("options"), py::arg("target"), py::arg("name"), py::arg("threads"), py::kw_only(),
        py::arg("key"), py::arg("samples"), py::arg("leaf"), py::arg("objects") = py::none(),
        py::arg("views") = py::none(), py::arg("rows") = std::vector<std::size_t>(),
        py::arg("padding") = py::none());
  m.def(
      "image_windows",
      [](const ImageViews& views, py::object target, const std::string& name) {
        return write_windows(views, OutputRequest(std::move(target), true), name);
      },
      py::arg("views"), py::arg("target"), py::arg("name"));
  m.def("normalize_windows", &normalize_windows, py::arg("images"), py::arg("format"),
        py::arg("target"), py::arg("name"), py::arg("threads"), py::arg("argument") = "",
        py::kw_only(), py::arg("windows"), py::arg("size"), py::arg("interpolation"),
        py::arg("in_floats"));
}

}  // namespace pinfeed::bindings
