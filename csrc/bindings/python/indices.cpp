// _core.as_indices: the indices of a sampler, as checked int64 row numbers.
#include <pybind11/critical_section.h>
#include <pybind11/numpy.h>

#include <cstring>
#include <string>

#include "bindings/python/array_view.h"
#include "bindings/python/mapped_file.h"
#include "bindings/python/scalar_types.h"
#include "dispatch/dispatch.h"
#include "kernels/strided_copy.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

[[noreturn]] void refuse(const std::string& index, std::size_t position, std::int64_t length,
                         const std::string& name) {
  throw wrong_index({name}, "index " + index + " at position " + std::to_string(position) +
                                " is out of range for " + std::to_string(length) + " samples");
}

// NumPy treats bools as masks, although older versions accept numpy.bool as an index.
bool is_bool(PyObject* object) {
  return PyBool_Check(object) || std::strcmp(Py_TYPE(object)->tp_name, "numpy.bool") == 0;
}

std::int64_t as_index(py::handle item, std::size_t position, const std::string& name) {
  PyObject* object = item.ptr();
  const bool is_int = PyLong_Check(object) && !PyBool_Check(object);
  if (is_int) {
    const long long value = PyLong_AsLongLong(object);
    if (value != -1 || PyErr_Occurred() == nullptr) return value;
    PyErr_Clear();
  }
  const auto owner = py::reinterpret_borrow<py::object>(item);  // code that runs below may drop it
  if (is_int) {
    throw wrong_index({name}, "index " + std::string(py::str(item)) + " at position " +
                                  std::to_string(position) + " does not fit in 64 bits");
  }
  if (PyIndex_Check(object) && !is_bool(object)) {
    MappedFiles().check(item);
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object));
    if (number) return as_index(number, position, name);
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
    PyErr_Clear();  // such as an array of several items
  }
  const bool is_batch = PySequence_Check(object) && !PyUnicode_Check(object);
  throw wrong_type(
      {name}, "integers",
      std::string(py::str(py::type::handle_of(item).attr("__name__"))) + " at position " +
          std::to_string(position),
      is_batch ? "if it is a batch, pass its sampler to DataLoader as batch_sampler=, not sampler="
               : "");
}

// Converts the indices before it checks them, because another thread may write to them meanwhile.
py::array_t<std::int64_t> from_array(py::handle indices, std::int64_t length,
                                     const std::string& name) {
  MappedFiles().check(indices);
  const ArrayView view = view_array(indices, Subject{name});
  if (view.axes() != 1 || !view.dtype.is_integer()) {
    throw wrong_type({name}, "a 1-D array of integers",
                     view.dtype.name() + " " + shape_text(view.shape));
  }
  py::array_t<std::int64_t> result(view.shape[0]);
  std::int64_t* const out = result.mutable_data();
  const auto count = static_cast<std::size_t>(view.shape[0]);
  const kernels::Cast cast = Types{view.dtype, kInt64}.cast();
  bool fits = true;
  if (view.contiguous()) {
    fits = cast(view.data, count, out);
  } else {
    const std::int64_t stride = view.stride(0);
    fits = kernels::StridedCopy(1, view.shape.data(), &stride, view.dtype.item_size(), cast,
                                sizeof(*out))
               .run(*dispatch::active_isa().permute, view.data, out, false);
  }
  // Branch-free; searches for the index out of range only if there is one. uint64 values that don't
  // fit have become negative.
  const std::int64_t from_end = view.dtype.kind() == ScalarKind::signed_int ? length : 0;
  const auto is_inside = [=](std::int64_t index) {
    return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(length);
  };
  bool all_inside = true;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] += (out[i] >> 63) & from_end;
    all_inside &= is_inside(out[i]);
  }
  for (std::size_t i = 0; !all_inside && i < count; ++i) {
    if (is_inside(out[i])) continue;
    const std::int64_t index = out[i] < 0 ? out[i] - from_end : out[i];
    const bool wraps = !fits && index < 0;
    refuse(wraps ? std::to_string(static_cast<std::uint64_t>(index)) : std::to_string(index), i,
           length, name);
  }
  return result;
}

py::array_t<std::int64_t> as_indices(const py::object& indices, std::int64_t length,
                                     const std::string& name) {
  if (length < 0) throw wrong_value({name}, "the number of samples must not be negative");
  const bool is_list = PyList_Check(indices.ptr()) != 0;
  if (!is_list && !PyTuple_Check(indices.ptr())) {
    if (py::isinstance<py::sequence>(indices) && !py::isinstance<py::str>(indices) &&
        !py::isinstance<py::array>(indices) && !py::hasattr(indices, "__dlpack__")) {
      return as_indices(py::list(indices), length, name);  // such as a range
    }
    return from_array(indices, length, name);
  }
  const py::scoped_critical_section alone(indices);
  const auto count = PySequence_Fast_GET_SIZE(indices.ptr());
  py::array_t<std::int64_t> result(count);
  std::int64_t* out = result.mutable_data();
  for (py::ssize_t i = 0; i < count; ++i) {
    // __index__ may run any code, which may shrink the list.
    if (i >= PySequence_Fast_GET_SIZE(indices.ptr())) {
      throw wrong_value({name}, "the list changed while it was read");
    }
    const auto position = static_cast<std::size_t>(i);
    const std::int64_t index = as_index(PySequence_Fast_GET_ITEM(indices.ptr(), i), position, name);
    if (index < -length || index >= length) refuse(std::to_string(index), position, length, name);
    out[i] = index + (index < 0 ? length : 0);
  }
  return result;
}

}  // namespace

void register_indices(py::module_& m) {
  m.def("as_indices", &as_indices, py::arg("indices"), py::arg("length"), py::arg("name"));
}

}  // namespace pinfeed::bindings
