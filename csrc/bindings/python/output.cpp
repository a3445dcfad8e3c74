#include "bindings/python/output.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <new>
#include <utility>

#include "bindings/python/imported.h"
#include "bindings/python/mapped_file.h"
#include "bindings/python/scalar_types.h"
#include "bindings/python/torch_exchange.h"
#include "runtime/buffer_pool.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using runtime::BufferPool;

py::object pooled_tensor(const Shape& shape, DType dtype, void* data) {
  return new_tensor(data, shape, dtype,
                    [](void* buffer) { BufferPool::instance().release(buffer); });
}

py::object pooled_ndarray(const Shape& shape, DType dtype, void* data) {
  py::capsule owner(data, [](void* buffer) { BufferPool::instance().release(buffer); });
  const auto unit = static_cast<std::int64_t>(dtype.item_size());
  return py::array(py::dtype(dtype.name()), shape, arrays::contiguous_strides(shape, unit), data,
                   owner);
}

void* acquire(std::size_t bytes, const Shape& shape, const std::string& function) {
  try {
    return BufferPool::instance().acquire(bytes);
  } catch (const std::bad_alloc&) {
    raise_no_memory(function, "a result of shape " + shape_text(shape) + ", " +
                                  std::to_string(bytes) + " bytes");
  }
}

}  // namespace

OutputRequest::OutputRequest(py::object destination, bool samples_are_tensors)
    : target(std::move(destination)), as_tensor(samples_are_tensors) {
  if (PyType_Check(target.ptr())) {
    as_tensor = !target.is(once([] { return imported("numpy", "ndarray"); }));
    target = py::none();
  } else if (!target.is_none()) {
    as_tensor = !is_given() || is_tensor(target);
  }
}

bool OutputRequest::is_given() const {
  return !target.is_none() && PyCallable_Check(target.ptr()) == 0;
}

OutputRequest OutputRequest::elsewhere() const {
  return {is_given() ? py::none() : target, as_tensor};
}

Output make_output(const OutputRequest& request, const Shape& shape, DType dtype,
                   const std::string& function, const Shape* alternative) {
  if (request.target.is_none()) {
    if (!request.as_tensor) require_numpy_has(dtype, function);
    void* data = acquire(checked_bytes(shape, dtype, function), shape, function);
    py::object array =
        request.as_tensor ? pooled_tensor(shape, dtype, data) : pooled_ndarray(shape, dtype, data);
    return {std::move(array), static_cast<std::byte*>(data)};
  }
  py::object array = request.target;
  if (PyCallable_Check(array.ptr()) != 0) {
    array = array(py::tuple(py::cast(shape)), dtype.name());
  }
  const ArrayView view = view_array(array, Subject{function + ": out"});
  MappedFiles().check(array);
  if (view.dtype != dtype) {
    throw wrong_type({function},
                     "out must have dtype " + dtype.name() + ", got " + view.dtype.name());
  }
  if (!std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.end())) {
    throw wrong_value(
        {function}, "out must have shape " + shape_text(shape) + ", got " + shape_text(view.shape));
  }
  if (!view.writable) throw wrong_value({function}, "out must be writable, got a read-only array");
  const bool contiguous = view.contiguous();
  if (!contiguous && (alternative == nullptr ||
                      !arrays::has_strides(view.shape, view.byte_strides(), *alternative))) {
    const std::string layouts =
        alternative == nullptr ? "C-contiguous" : "C-contiguous or channels-last";
    throw wrong_value({function}, "out must be " + layouts + ", got byte strides " +
                                      shape_text(view.byte_strides()));
  }
  return {std::move(array), view.data, !contiguous};
}

void raise_no_memory(const std::string& function, const std::string& purpose) {
  throw Problem(PyExc_MemoryError, {function}, "no memory for " + purpose, "", "pass less at once");
}

void check_no_overlap(const Output& output, std::size_t bytes, const Extent& source,
                      const std::string& function) {
  if (arrays::overlap({output.data, output.data + bytes}, source)) {
    throw wrong_value({function}, "out must not overlap the input", "",
                      "pass an array with its own memory");
  }
}

std::int64_t rounded_up(std::int64_t size, std::int64_t multiple, const std::string& name) {
  const std::int64_t rest = size % multiple;
  if (rest != 0 && __builtin_add_overflow(size, multiple - rest, &size)) {
    throw wrong_value({name},
                      "multiple_of=" + std::to_string(multiple) + " is too large for any memory");
  }
  return size;
}

}  // namespace pinfeed::bindings
