#include "bindings/python/output.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>

#include "bindings/python/mapped_file.h"
#include "bindings/python/torch_exchange.h"
#include "runtime/buffer_pool.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using runtime::BufferPool;

Shape contiguous_strides(const Shape& shape, std::int64_t unit) {
  Shape strides(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = unit;
    unit *= shape[i];
  }
  return strides;
}

// A tensor's hold on a buffer of the pool: gives it back when the tensor's storage dies. Runs on
// any thread, with or without the GIL, and touches no Python.
struct PooledTensor {
  dlpack::ManagedTensor managed;
  Shape shape;
  Shape strides;

  static void give_back(dlpack::ManagedTensor* managed) {
    auto* self = static_cast<PooledTensor*>(managed->context);
    BufferPool::instance().release(managed->tensor.data);
    delete self;
  }
};

py::object pooled_tensor(const Shape& shape, DType dtype, void* data) {
  auto owner = std::make_unique<PooledTensor>();
  owner->shape = shape;
  owner->strides = contiguous_strides(shape, 1);
  owner->managed = {
      .version = {1, 0},
      .context = owner.get(),
      .deleter = PooledTensor::give_back,
      .flags = 0,
      .tensor = {.data = data,
                 .device = {dlpack::kCpu, 0},
                 .axes = static_cast<std::int32_t>(shape.size()),
                 .type = {static_cast<std::uint8_t>(dtype.code), dtype.bits, 1},
                 .shape = owner->shape.data(),
                 .strides = owner->strides.data(),
                 .byte_offset = 0},
  };
  return adopt_as_tensor(&owner.release()->managed);
}

py::object pooled_ndarray(const Shape& shape, DType dtype, void* data) {
  py::capsule owner(data, [](void* buffer) { BufferPool::instance().release(buffer); });
  const auto unit = static_cast<std::int64_t>(dtype.item_size());
  return py::array(py::dtype(dtype.name()), shape, contiguous_strides(shape, unit), data, owner);
}

void* acquire(std::size_t bytes, const Shape& shape, const std::string& function) {
  try {
    return BufferPool::instance().acquire(bytes);
  } catch (const std::bad_alloc&) {
    const std::string message = function + ": no memory for a result of shape " +
                                shape_text(shape) + ", " + std::to_string(bytes) + " bytes";
    PyErr_SetString(PyExc_MemoryError, message.c_str());
    throw py::error_already_set();
  }
}

bool has_strides(const ArrayView& view, const Shape& strides) {
  for (std::size_t i = 0; i < view.axes(); ++i) {
    if (view.shape[i] != 1 && view.stride(i) != strides[i]) return view.items() == 0;
  }
  return true;
}

}  // namespace

Output make_output(const OutputRequest& request, const Shape& shape, DType dtype,
                   const std::string& function, const Shape* alternative, bool* used_alternative) {
  if (used_alternative != nullptr) *used_alternative = false;
  if (request.target.is_none()) {
    void* data = acquire(checked_bytes(shape, dtype, function), shape, function);
    py::object array =
        request.as_tensor ? pooled_tensor(shape, dtype, data) : pooled_ndarray(shape, dtype, data);
    return {std::move(array), static_cast<std::byte*>(data)};
  }
  py::object array = request.target;
  if (PyCallable_Check(array.ptr()) != 0) {
    array = array(py::tuple(py::cast(shape)), dtype.name());
  }
  const std::string name = function + ": out";
  const ArrayView view = view_array(array, Subject{name});
  MappedFiles().check(array);
  if (view.dtype != dtype) {
    throw py::type_error(name + " must have dtype " + dtype.name() + ", got " + view.dtype.name());
  }
  if (!std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.end())) {
    throw py::value_error(name + " must have shape " + shape_text(shape) + ", got " +
                          shape_text(view.shape));
  }
  if (!view.writable) throw py::value_error(name + " must be writable, got a read-only array");
  if (!view.contiguous()) {
    if (alternative == nullptr || !has_strides(view, *alternative)) {
      throw py::value_error(name + " must be C-contiguous" +
                            (alternative == nullptr ? "" : " or channels-last") +
                            ", got byte strides " + shape_text(view.byte_strides()));
    }
    *used_alternative = true;
  }
  return {std::move(array), view.data};
}

void check_no_overlap(const Output& output, std::size_t bytes, const Extent& source,
                      const std::string& function) {
  const bool any = bytes > 0 && source.begin < source.end;
  if (any && source.begin < output.data + bytes && output.data < source.end) {
    throw py::value_error(function + ": out overlaps the input; give it memory of its own");
  }
}

std::size_t checked_bytes(const Shape& shape, DType dtype, const std::string& function) {
  // An axis without items must not hide that the others are too long: strides are made of them.
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  auto bytes = static_cast<std::int64_t>(dtype.item_size());
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      throw py::value_error(function + ": a result of shape " + shape_text(shape) +
                            " is larger than memory can be");
    }
  }
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

std::int64_t rounded_up(std::int64_t size, std::int64_t multiple, const std::string& name) {
  const std::int64_t rest = size % multiple;
  if (rest != 0 && __builtin_add_overflow(size, multiple - rest, &size)) {
    throw py::value_error(name + ": multiple_of=" + std::to_string(multiple) +
                          " is larger than memory can be");
  }
  return size;
}

}  // namespace pinfeed::bindings
