#include "bindings/python/image_samples.h"

#include <cmath>
#include <ranges>
#include <span>
#include <utility>

#include "bindings/python/scalar_types.h"
#include "dispatch/dispatch.h"
#include "kernels/strided_copy.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::ImageSize;
using kernels::ImageSource;

// How to give images the same number of channels. PIL converts bytes only; it truncates other
// values.
std::string same_channels_hint(DType dtype, int channel) {
  if (dtype == kUint8) return "PIL's .convert(\"RGB\") gives all images the same channels";
  const std::string axis = channel == 0 ? "0" : "-1";
  return "np.stack([image] * 3, " + axis +
         ") makes three channels from an image without channels, and np.repeat(image, 3, " + axis +
         ") from one channel";
}

// Whether float32 holds all values of a dtype.
bool becomes_float(DType dtype) {
  if (dtype.is_floating()) return dtype.item_size() <= 4;
  return dtype == kUint8 || (dtype.is_integer() && dtype.item_size() == 2);
}

bool becomes(DType from, DType to) {
  if (!to.is_integer()) {
    return becomes_float(from) && (to == kFloat32 || to == kFloat16 || to == kBfloat16);
  }
  return from == kBool || (from.is_integer() && !may_not_fit(from, to));
}

std::string hint_for(DType from, DType to) {
  if (from.kind() == ScalarKind::complex) return "np.abs(image) and np.angle(image) are real";
  if (to.is_integer()) {
    const std::string convert = " convert with .astype(np." + to.name() + ") or .to(torch." +
                                to.name() + ") in the dataset";
    if (!from.is_integer()) {
      return "whole numbers" + convert + "; other floats need Image(dtype=torch.float32)";
    }
    const std::string fits = to == kUint8 ? "values of 0..255" + convert : "";
    if (!becomes(from, kInt64)) return fits;
    return (fits.empty() ? "" : fits + "; or ") + "pass dtype=torch.int64, which holds every value";
  }
  if (from == kBool) return "convert with .astype(np.uint8) * 255 or .to(torch.uint8) * 255";
  const std::string floats =
      " with .astype(np.float32) or .to(torch.float32), and files with write_array(path, images, "
      "dtype=np.float32)";
  if (from.is_integer()) {
    return "convert values of 0..255 with .astype(np.uint8) or .to(torch.uint8), and others, such "
           "as CT volumes," +
           floats + "; use Mask() for masks";
  }
  return "convert" + floats;
}

std::span<const double> span_of(const Constants& constants) {
  return {constants.data(), static_cast<std::size_t>(constants.size())};
}

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
    std::string hint = "a single number applies to all channels";
    const bool are_bytes = dtype == kUint8;  // PIL's convert() clips other values
    if (given->size() == 3 && channels < 3) {
      hint = std::string("np.dstack([gray] * 3)") +
             (are_bytes ? ", or PIL's .convert(\"RGB\")," : "") + " makes three channels; " + hint;
    }
    if (given->size() == 3 && channels == 4) {
      hint = std::string(are_bytes ? "PIL's .convert(\"RGB\") converts RGBA and CMYK; " : "") +
             "image[..., :3] of an RGBA array drops alpha; RGBA needs four values";
    }
    throw wrong_value(
        {name}, std::to_string(given->size()) + " channels, one for each value of mean and std",
        std::to_string(channels), hint);
  }
  scales.reserve(channels);  // raises if an image without pixels has more channels than fit memory
  biases.reserve(channels);
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

ImageAxes::ImageAxes(const std::string& layout) : letters(layout) {
  const auto axis = [&](char letter) {
    const std::size_t found = letters.find(letter);
    return found == std::string::npos ? -1 : static_cast<int>(found);
  };
  frame = axis('T');
  height = axis('H');
  width = axis('W');
  channel = axis('C');
}

Images::Images(py::object images, py::object indices, const ImageFormat& format, bool any_size,
               const std::string& name)
    : name_(name),
      out_(out_dtype(format)),
      axes_(format.input),
      are_chosen_(!indices.is_none()),
      samples_(std::move(images), py::none(), std::move(indices), name, Common::rank) {
  // Gray images, unless they may be the rows of a single image.
  if (format.is_guess && axes_.letters == "HWC" && samples_.shape().size() == 2 &&
      samples_.shape()[1] > 4 && (samples_.are_separate() || are_chosen_)) {
    axes_ = ImageAxes("HW");
  }
  if (format.is_guess && axes_.letters == "HW" && samples_.shape().size() == 3) {  // masks
    if (samples_.shape().front() == 1) {
      axes_ = ImageAxes("CHW");
    } else if (samples_.shape().back() == 1) {
      axes_ = ImageAxes("HWC");
    }
  }
  require_dtype();
  require_layout();
  if (format.is_guess) require_channels_last();
  require_common(any_size);
}

std::vector<ImageSource> Images::sources() const {
  std::vector<ImageSource> sources;
  const std::int64_t frames = this->frames();
  sources.reserve(count() * static_cast<std::size_t>(frames));
  for (std::size_t i = 0; i < count(); ++i) {
    const std::int64_t* const strides = samples_.strides(i);
    const auto* const data = static_cast<const std::uint8_t*>(samples_.data()[i]);
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      sources.push_back({
          .data = data + (frame == 0 ? 0 : frame * strides[axes_.frame]),
          .row_stride = strides[axes_.height],
          .column_stride = strides[axes_.width],
          .channel_stride = axes_.channel < 0 ? 1 : strides[axes_.channel],
      });
    }
  }
  return sources;
}

std::vector<py::array> Images::read_late(std::size_t begin, std::size_t end,
                                         std::vector<ImageSource>& sources) const {
  std::vector<py::array> pixels;
  for (std::size_t i = begin; samples_.are_late() && i < end; ++i) {
    if (samples_.late(i) == nullptr) continue;
    pixels.push_back(samples_.late(i)->read());
    const auto* const data = static_cast<const std::byte*>(pixels.back().data());
    sources[i].data += data - &LateImage::kNowhere;
  }
  return pixels;
}

std::vector<ImageSize> Images::sizes() const {
  std::vector<ImageSize> sizes(count());
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = size_of(i);
  return sizes;
}

// Separate samples agree with the first, so the first does not fit.
Subject Images::subject() const { return {name_, samples_.are_separate() ? 0 : -1}; }

// "of shape (H, W, C)"
std::string Images::layout() const {
  std::string axes = samples_.are_all_rows() ? "N" : "";
  std::string shape;
  for (const char letter : axes + axes_.letters) {
    shape += shape.empty() ? "" : ", ";
    shape += letter;
  }
  return "of shape (" + shape + ")";
}

// "float64 (8, 6, 3)"
std::string Images::got() const {
  return samples_.dtype().name() + " " + shape_text(samples_.given_shape());
}

// A bool mask counts as uint8, because its fill may be another number.
DType Images::dtype() const {
  return samples_.dtype() == kBool && out_.is_integer() ? kUint8 : samples_.dtype();
}

std::string Images::first_channels(int count) const {
  const std::string before = axes_.channel == 0 ? "" : axes_.channel == 1 ? ":, " : "..., ";
  return "image[" + before + ":" + std::to_string(count) + "]";
}

bool Images::are_colors() const { return dtype() == kUint8 && (out_ == kUint8 || become_floats()); }

bool Images::become_floats() const { return !out_.is_integer(); }

void Images::require_dtype() const {
  if (becomes(dtype(), out_)) return;
  const std::string kinds = out_.is_integer()
                                ? "integers that " + out_.name() + " can hold, "
                                : "uint8, uint16, int16, float16, bfloat16 or float32 ";
  throw wrong_type(subject(), kinds + layout(), got(), hint_for(dtype(), out_));
}

void Images::require_layout() const {
  const std::size_t axis_count = axes_.letters.size();
  if (samples_.shape().size() != axis_count) {
    std::string hint;
    if (axis_count == 3 && samples_.shape().size() == 2) {
      if (samples_.are_all_rows()) {
        hint = "a single image needs images[None], gray images input=\"NHW\"";
      } else if (samples_.shape().back() == 3 || samples_.shape().back() == 4) {
        hint =
            "rows of one image are not samples: files of one image each take "
            "ConcatArray(paths, samples=True)";
      } else {
        hint = "for gray images pass input=\"HW\"; among color images, " +
               same_channels_hint(dtype(), axes_.channel);
      }
    }
    if (axis_count == 3 && samples_.shape().size() == 4) {
      hint = samples_.are_all_rows()
                 ? "for clips pass input=\"NTHWC\", output=\"NCTHW\""
                 : "for clips pass input=\"THWC\", and output=\"CTHW\" to Image";
    }
    if (axis_count > 2 && samples_.shape().size() == 1 && dtype() == kUint8) {
      hint = "PIL.Image.open(io.BytesIO(data)) reads the bytes of an image file";
    }
    if (axis_count == 2 && samples_.shape().size() == 3) {
      if (out_.is_integer())
        hint =
            "mask.argmax(0) has the classes of a mask per class; InstanceMasks() takes a mask "
            "per object";
      if (samples_.shape().front() == 1) hint = "pass input=\"CHW\", output=\"CHW\", or mask[0]";
      if (samples_.shape().back() == 1)
        hint = "pass input=\"HWC\", output=\"CHW\", or mask[..., 0]";
      if (samples_.shape().back() == 3 || samples_.shape().back() == 4) {
        hint = out_.is_integer() ? "pass mask[..., 0] if channels are equal, (mask[:, :, None] == "
                                   "colors).all(-1).argmax(-1) if `colors` has each class's color"
                                 : "pass input=\"HWC\", output=\"CHW\"";
      }
    }
    throw wrong_value(subject(), "images " + layout(), got(), hint);
  }
}

void Images::require_some() const {
  if (count() == 0) throw wrong_value({name_}, "at least one image", "none");
}

void Images::require_finite(const Scaling& scaling, DType to, const std::byte* out,
                            std::size_t bytes) const {
  if (to != kFloat16 || dtype() != DType{ScalarType::uint16} || !scaling.is_identity()) return;
  constexpr std::uint16_t kInfinity = 0x7c00;
  const std::span items(reinterpret_cast<const std::uint16_t*>(out), bytes / sizeof(kInfinity));
  const auto found = std::ranges::find(items, kInfinity);
  if (found == items.end()) return;
  throw wrong_value(subject(), "integers that float16 can hold", "more than 65519",
                    "pass a wider dtype, or a scale");
}

// A guessed layout must not treat columns as channels. If (C, H, W) is read as (H, W, C), the
// number of channels is the width; few real images have that shape.
void Images::require_channels_last() const {
  if (channels() <= 4 || channels() < std::min(height(0), width(0))) return;
  throw wrong_value(subject(), "images of shape (H, W, C)",
                    shape_text(samples_.shape()) + ", which looks like (C, H, W)",
                    "pass input=\"CHW\", or input=\"HWC\" if there are " +
                        std::to_string(channels()) +
                        " channels; for volumes of one channel input=\"THW\", output=\"THW\"");
}

void Images::require_units(const ImageFormat& format) const {
  if (!become_floats()) return;
  if (format.scale && dtype().is_integer()) require_constants(format);
  if (!format.scale && dtype().is_floating()) require_fractions();
  if (!format.scale && dtype().is_integer() && dtype().item_size() == 2) require_depth(format);
}

// Fractions are constants of values 0..1, which integers have only after scaling.
void Images::require_constants(const ImageFormat& format) const {
  constexpr double kMax = 16, kMaxFraction = 1.5;
  if (std::abs(*format.scale) <= kMax / 255) return;  // accepted for bytes, in any dtype
  bool are_fractions = false;
  for (const Constants* given : {&format.mean, &format.std}) {
    for (const double number : span_of(*given)) {
      if (std::abs(number) > kMaxFraction) return;
      are_fractions |= number != std::round(number);
    }
  }
  const auto is_bright = [&](std::size_t image) { return range_in_some_rows(image).max > kMax; };
  if (!are_fractions ||
      std::ranges::none_of(std::views::iota(std::size_t{0}, count()), is_bright)) {
    return;  // such as values of 0 and 1
  }
  throw wrong_value({name_},
                    "mean and std in units of the images' own values, which scale=" +
                        std::string(py::str(py::float_(*format.scale))) + " keeps",
                    "constants for values 0..1",
                    "leave scale out (do_rescale=False of a processor sets it)");
}

// 16-bit integers that hold 8 to 12 bits: no image exceeds that range, and one has more than half a
// byte; the mean is above all pixels, or the deviation above half of the largest pixel. Dark images
// can have values over 255 too, so they warn.
void Images::require_depth(const ImageFormat& format) const {
  constexpr float kByte = 255, kMaxBits = 4095;
  const auto largest = [](const Constants& given) { return std::ranges::max(span_of(given)); };
  const bool has_constants =
      std::ranges::any_of(span_of(format.mean), [](double x) { return x != 0; }) ||
      std::ranges::any_of(span_of(format.std), [](double x) { return x != 1; });
  if (!has_constants || format.has_depth->load(std::memory_order_relaxed)) return;
  float brightest = 0;
  for (std::size_t i = 0; i < count(); ++i) {
    const Range range = range_in_some_rows(i);
    const float extent = std::max(-range.min, range.max);  // CT images have values below 0
    if (extent > kMaxBits) {
      if (format.remembers) format.has_depth->store(true, std::memory_order_relaxed);
      return;
    }
    brightest = std::max(brightest, extent);
  }
  const double white = brightest * default_scale(dtype());
  if (brightest <= kByte / 2 || (largest(format.mean) <= white && largest(format.std) <= white / 2))
    return;
  const auto number = [](float x) { return std::to_string(static_cast<int>(x)); };
  const std::string of_dtype = dtype().name() == "int16" ? "32767" : "65535";
  const std::string range = brightest <= kByte ? "255" : brightest <= 1023 ? "1023" : "4095";
  const std::string expected = dtype().name() + " images with values up to " + of_dtype;
  const std::string got = "at most " + number(brightest) + ", too dark for mean and std";
  const std::string hint = "pass scale=1/" + range + " for values 0.." + range +
                           (brightest <= kByte ? ", or convert with .astype(np.uint8)" : "") +
                           "; if the images are that dark, pass scale=1/" + of_dtype;
  if (brightest <= kByte) throw wrong_value({name_}, expected, got, hint);
  const std::string text = name_ + ": expected " + expected + ", got " + got + "; " + hint;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw py::error_already_set();
  if (format.remembers) format.has_depth->store(true, std::memory_order_relaxed);  // warn once
}

// Checks the first image that is not dark. Some rows are enough, because images of bytes rarely
// have only dark rows, and a whole image in a file would be read twice.
void Images::require_fractions() const {
  constexpr float kMax = 16;  // four stops beyond white
  for (std::size_t i = 0; i < count(); ++i) {
    const float brightest = range_in_some_rows(i).max;
    if (brightest > kMax) {
      throw wrong_value(Subject{name_, static_cast<std::int64_t>(i)},
                        "values of 0..1, the unit of mean and std for floats",
                        py::str(py::float_(brightest)),
                        "pass scale=1/255 for values of 0..255, or scale=1 for constants in units "
                        "of the images' own values");
    }
    if (brightest > 0 && brightest <= 1) return;
  }
}

// The range of 0 and the finite values in 16 to 31 rows of the first frame.
Images::Range Images::range_in_some_rows(std::size_t image) const {
  constexpr std::int64_t kRows = 16;
  const std::span<const std::int64_t> sizes = samples_.shape(image);
  std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
  std::vector<std::int64_t> strides(samples_.strides(image),
                                    samples_.strides(image) + shape.size());
  const std::int64_t step = std::max<std::int64_t>(height(image) / kRows, 1);
  shape[axes_.height] = (height(image) + step - 1) / step;
  strides[axes_.height] *= step;
  if (axes_.frame >= 0) shape[axes_.frame] = std::min<std::int64_t>(frames(), 1);
  std::int64_t items = 1;
  for (const std::int64_t size : shape) items *= size;
  const Types types = find_types(dtype(), "float32", Subject{name_});
  const LateImage* const late = samples_.late(image);
  const py::array pixels = late == nullptr ? py::array() : late->read();
  std::vector<float> values(static_cast<std::size_t>(items));
  kernels::StridedCopy(shape.size(), shape.data(), strides.data(), dtype().item_size(),
                       types.cast(), sizeof(float))
      .run(*dispatch::active_isa().permute,
           late == nullptr ? samples_.data(image) : static_cast<const std::byte*>(pixels.data()),
           reinterpret_cast<std::byte*>(values.data()), false);
  Range range;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    range.min = std::min(range.min, value);
    range.max = std::max(range.max, value);
  }
  return range;
}

void Images::require_common(bool any_size) const {
  if (!samples_.are_separate()) return;
  for (std::size_t i = 1; i < count(); ++i) {
    const bool same_channels =
        size(i, axes_.channel) == channels() && size(i, axes_.frame) == frames();
    const bool same_size = height(i) == height(0) && width(i) == width(0);
    if (same_channels && (same_size || any_size)) continue;
    const Subject subject{name_, static_cast<std::int64_t>(i)};
    const std::string shape = shape_text(samples_.shape(i));
    const std::span<const std::int64_t> sizes = samples_.shape(i);
    // The channels of this image are where others have their first or last axis.
    const bool is_turned = !same_channels && sizes.size() == 3 && axes_.channel >= 0 &&
                           sizes[2 - axes_.channel] == channels() && channels() <= 4;
    const std::string way =
        is_turned
            ? (axes_.channel == 0 ? "np.moveaxis(image, -1, 0)" : "np.moveaxis(image, 0, -1)") +
                  std::string(" turns an image of the other layout")
        : size(i, axes_.frame) == frames()
            ? same_channels_hint(dtype(), axes_.channel)
            : "cut clips to the same number of frames: clip[" +
                  std::string(axes_.frame == 0 ? ":" : ":, :") +
                  std::to_string(std::min(size(i, axes_.frame), frames())) + "]";
    if (any_size) {
      const std::string frames =
          axes_.frame < 0 ? "" : " and " + std::to_string(this->frames()) + " frames";
      throw wrong_value(subject,
                        std::to_string(channels()) + " channels" + frames + " as in sample 0",
                        "shape " + shape, same_channels ? "" : way);
    }
    throw wrong_value(subject, "shape " + shape_text(samples_.shape()) + " as in sample 0", shape,
                      same_channels ? "pass pad_value to pad images of different sizes" : way);
  }
}

}  // namespace pinfeed::bindings
