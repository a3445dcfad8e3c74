#include "bindings/python/image_samples.h"

#include <utility>

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::ImageSize;
using kernels::ImageSource;

ImageAxes source_axes(const std::string& layout) {
  if (layout == "HWC" || layout == "HWC?") return {"(H, W, C)", "(N, H, W, C)", 0, 1, 2};
  if (layout == "CHW") return {"(C, H, W)", "(N, C, H, W)", 1, 2, 0};
  if (layout == "HW") return {"(H, W)", "(N, H, W)", 0, 1, -1};
  throw py::value_error("unknown image layout " + layout);
}
constexpr const char* kAlike = "; PIL's .convert(\"RGB\") gives all images the same channels";

// Values that a cast to bytes would destroy need another way out.
std::string hint_for(DType dtype) {
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

}  // namespace

Images::Images(py::object images, py::object indices, const std::string& layout, bool any_size,
               const std::string& name)
    : name_(name),
      axes_(source_axes(layout)),
      samples_(std::move(images), py::none(), std::move(indices), name, Common::rank) {
  require_layout();
  if (layout == "HWC?") require_channels_last();
  require_common(any_size);
}

std::vector<ImageSource> Images::sources() const {
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

std::vector<ImageSize> Images::sizes() const {
  std::vector<ImageSize> sizes(count());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = {static_cast<std::size_t>(height(i)), static_cast<std::size_t>(width(i))};
  }
  return sizes;
}

void Images::require_layout() const {
  const std::string wanted = std::string("uint8 with shape ") +
                             (samples_.are_all_rows() ? axes_.batch_text : axes_.text) + ", got " +
                             samples_.dtype().name() + " " + shape_text(samples_.given_shape());
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

// A layout that nobody asked for must not make channels of columns.
void Images::require_channels_last() const {
  const std::int64_t first = height(0);
  if (channels() <= 4 || width(0) <= 4 || (first != 1 && first != 3 && first != 4)) return;
  throw py::value_error(Subject{name_, samples_.are_separate() ? 0 : -1}.text() +
                        ": expected images of shape (H, W, C), got " +
                        shape_text(samples_.shape()) +
                        ", as (C, H, W) has it; say input=\"CHW\", or input=\"HWC\" if there are " +
                        std::to_string(channels()) + " channels");
}

void Images::require_common(bool any_size) const {
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
    throw py::value_error(subject + ": expected shape " + shape_text(samples_.shape()) +
                          " as in sample 0, got " + shape +
                          (same_channels ? "; pad_value pads images of different sizes" : kAlike));
  }
}

}  // namespace pinfeed::bindings
