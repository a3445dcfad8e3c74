// _core.LateImage and lend_pixels.
#include "bindings/python/pillow.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "arrays/layout.h"
#include "bindings/python/imported.h"
#include "bindings/python/options.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// As the Arrow C data interface lays them out in memory
// (https://arrow.apache.org/docs/format/CDataInterface.html).
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

template <class Type>
const Type& held_by(py::handle capsule, const char* name) {
  auto* const held = static_cast<Type*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (held == nullptr) throw py::error_already_set();
  if (held->release == nullptr) throw py::value_error("lend_pixels: nothing is lent any more");
  return *held;
}

// Of the formats that Pillow's pixels have; 0 for others.
std::int64_t item_size(std::string_view format) {
  if (format == "C") return 1;
  if (format == "S") return 2;
  return format == "i" || format == "f" ? 4 : 0;
}

// What Pillow's __arrow_c_array__ returns, seen as an array that keeps it alive. Pixels of several
// channels are lists of four bytes there, which lie in the only child. Throws ValueError.
py::array lend_pixels(const std::pair<py::object, py::object>& lent, const Shape& shape,
                      const Shape& strides, const py::dtype& dtype) {
  const auto* schema = &held_by<ArrowSchema>(lent.first, "arrow_schema");
  const auto* items = &held_by<ArrowArray>(lent.second, "arrow_array");
  bool fits = items->offset == 0 && shape.size() == strides.size() && dtype.kind() != 'O';
  if (items->n_children == 1 && schema->n_children == 1) {
    items = items->children[0];
    schema = schema->children[0];
  }
  fits = fits && items->offset == 0 && items->n_buffers == 2;
  std::int64_t bytes = dtype.itemsize();
  for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) {
    std::int64_t end = 0;
    fits = shape[axis] > 0 && strides[axis] > 0 &&
           !__builtin_mul_overflow(shape[axis] - 1, strides[axis], &end) &&
           !__builtin_add_overflow(bytes, end, &bytes);
  }
  if (!fits || items->length * item_size(schema->format) < bytes) {
    throw py::value_error("lend_pixels: shape must match the number of pixels");
  }
  py::array pixels(dtype, shape, strides, items->buffers[1], lent.second);
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
    throw py::value_error("LateImage: sizes must not be negative");
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
    throw py::value_error("an image changed its size or mode while a batch was made of it");
  }
  return pixels;
}

void register_pillow(py::module_& m) {
  bind_class<LateImage>(m, "LateImage")
      .def(py::init<py::object, Shape>(), py::arg("image"), py::arg("shape"));
  m.def("lend_pixels", &lend_pixels, py::arg("lent"), py::arg("shape"), py::arg("strides"),
        py::arg("dtype"));
}

}  // namespace pinfeed::bindings
