// _core.LateImage and lend_pixels.
#include "bindings/python/pillow.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "arrays/layout.h"
#include "bindings/python/imported.h"
#include "bindings/python/options.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// From the Arrow C data interface
// (https://arrow.apache.org/docs/format/CDataInterface.html).
struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  void* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

// The array that a core image's __arrow_c_array__ exports, with `channels` (0: without that axis)
// items `step` bytes apart; keeps it alive. Pixels of several channels are lists of four bytes,
// stored in the only child. Throws ValueError.
py::array lend_pixels(const py::object& lent, std::int64_t height, std::int64_t width,
                      std::int64_t channels, std::int64_t step, const py::dtype& dtype) {
  const auto* items =
      static_cast<const ArrowArray*>(PyCapsule_GetPointer(lent.ptr(), "arrow_array"));
  if (items == nullptr) throw py::error_already_set();
  bool fits = items->release != nullptr && items->offset == 0 && dtype.kind() != 'O';
  if (fits && items->n_children == 1) items = items->children[0];
  const std::int64_t item = dtype.itemsize(), pixel = channels > 0 ? 4 : item;
  std::int64_t bytes = 0;
  fits = fits && items->offset == 0 && items->n_buffers == 2 && height > 0 && width > 0 &&
         channels >= 0 && channels <= 4 && step >= 0 && step <= 4 && item > 0 &&
         (channels == 0 || (channels - 1) * step + item <= 4) &&
         !__builtin_mul_overflow(height, width, &bytes) &&
         !__builtin_mul_overflow(bytes, pixel, &bytes) && items->length >= bytes / item;
  if (!fits) throw wrong_value({"lend_pixels"}, "expected sizes that match the number of pixels");
  Shape shape{height, width, channels}, strides{pixel * width, pixel, step};
  if (channels == 0) shape.pop_back(), strides.pop_back();
  py::array pixels(dtype, std::move(shape), std::move(strides), items->buffers[1], lent);
  py::detail::array_proxy(pixels.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return pixels;
}

}  // namespace

const std::byte LateImage::kNowhere{};

LateImage::LateImage(py::object image, Shape shape)
    : image_(std::move(image)),
      shape_(std::move(shape)),
      strides_(arrays::contiguous_strides(shape_, 1)) {
  if (std::ranges::any_of(shape_, [](std::int64_t size) { return size < 0; })) {
    throw wrong_value({"LateImage"}, "sizes must not be negative");
  }
  arrays::checked_bytes(shape_, 1, "LateImage");
}

ArrayView LateImage::view() const {
  return {
      .data = const_cast<std::byte*>(&kNowhere),
      .dtype = kUint8,
      .shape = shape_,
      .is_tensor = false,
      .writable = false,
      .strides_ = strides_.data(),
      .stride_unit_ = 1,
  };
}

py::array LateImage::read() const {
  const py::object& as_array = once([] { return imported("numpy", "asarray"); });
  py::array pixels = as_array(image_);
  const ArrayView view = view_array(pixels, Subject{"LateImage"});
  if (view.dtype != kUint8 || !view.contiguous() || !std::ranges::equal(view.shape, shape_)) {
    throw wrong_value({""}, "an image changed its size or mode while its batch was written");
  }
  return pixels;
}

void register_pillow(py::module_& m) {
  bind_class<LateImage>(m, "LateImage")
      .def(py::init<py::object, Shape>(), py::arg("image"), py::arg("shape"));
  m.def("lend_pixels", &lend_pixels, py::arg("lent"), py::arg("height"), py::arg("width"),
        py::arg("channels"), py::arg("step"), py::arg("dtype"));
}

}  // namespace pinfeed::bindings
