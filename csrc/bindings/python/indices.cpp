// _core.as_indices: whatever a sampler hands over, as checked int64 row numbers.
#include <pybind11/numpy.h>

#include <cstring>
#include <string>
#include <utility>

#include "bindings/python/array_view.h"
#include "bindings/python/mapped_file.h"
#include "bindings/python/module.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

std::int64_t wrapped(std::int64_t index, std::int64_t length, std::size_t position,
                     const std::string& name) {
  if (index < -length || index >= length) {
    throw py::index_error(name + ": index " + std::to_string(index) + " at position " +
                          std::to_string(position) + " is out of range for " +
                          std::to_string(length) + " samples");
  }
  return index < 0 ? index + length : index;
}

std::int64_t as_index(py::handle item, std::size_t position, const std::string& name) {
  PyObject* object = item.ptr();
  if (!PyBool_Check(object)) {  // True is an int to Python, a mask to NumPy: refuse to guess
    if (PyLong_Check(object)) {
      const long long value = PyLong_AsLongLong(object);
      if (value != -1 || PyErr_Occurred() == nullptr) return value;
      PyErr_Clear();
      throw py::index_error(name + ": index " + std::string(py::str(item)) + " at position " +
                            std::to_string(position) + " does not fit in 64 bits");
    }
    if (PyIndex_Check(object)) {
      MappedFiles().check(item);
      const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object));
      if (number) return as_index(number, position, name);
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
      PyErr_Clear();  // an array of several, say
    }
  }
  throw py::type_error(name + ": expected integers, got " +
                       std::string(py::str(py::type::handle_of(item).attr("__name__"))) +
                       " at position " + std::to_string(position));
}

template <class Integer>
void convert(const ArrayView& view, std::int64_t length, const std::string& name,
             std::int64_t* out) {
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    Integer value;
    std::memcpy(&value, view.data + i * view.stride(0), sizeof(Integer));
    const auto position = static_cast<std::size_t>(i);
    if (std::cmp_greater(value, INT64_MAX)) {
      throw py::index_error(name + ": index " + std::to_string(value) + " at position " +
                            std::to_string(position) + " is out of range for " +
                            std::to_string(length) + " samples");
    }
    out[i] = wrapped(static_cast<std::int64_t>(value), length, position, name);
  }
}

py::array_t<std::int64_t> from_array(py::handle indices, std::int64_t length,
                                     const std::string& name) {
  using dlpack::TypeCode;
  MappedFiles().check(indices);
  const ArrayView view = view_array(indices, Subject{name});
  if (view.axes() != 1 ||
      (view.dtype.code != TypeCode::signed_int && view.dtype.code != TypeCode::unsigned_int)) {
    throw py::type_error(name + ": expected a 1-D array of integers, got " + view.dtype.name() +
                         " " + shape_text(view.shape));
  }
  py::array_t<std::int64_t> result(view.shape[0]);
  std::int64_t* out = result.mutable_data();
  const bool is_signed = view.dtype.code == TypeCode::signed_int;
  switch (view.dtype.bits) {
    case 8:
      is_signed ? convert<std::int8_t>(view, length, name, out)
                : convert<std::uint8_t>(view, length, name, out);
      break;
    case 16:
      is_signed ? convert<std::int16_t>(view, length, name, out)
                : convert<std::uint16_t>(view, length, name, out);
      break;
    case 32:
      is_signed ? convert<std::int32_t>(view, length, name, out)
                : convert<std::uint32_t>(view, length, name, out);
      break;
    default:
      is_signed ? convert<std::int64_t>(view, length, name, out)
                : convert<std::uint64_t>(view, length, name, out);
      break;
  }
  return result;
}

py::array_t<std::int64_t> as_indices(const py::object& indices, std::int64_t length,
                                     const std::string& name) {
  const bool is_list = PyList_Check(indices.ptr()) != 0;
  if (!is_list && !PyTuple_Check(indices.ptr())) {
    if (py::isinstance<py::sequence>(indices) && !py::isinstance<py::str>(indices) &&
        !py::isinstance<py::array>(indices) && !py::hasattr(indices, "__dlpack__")) {
      return as_indices(py::list(indices), length, name);  // a range, say
    }
    return from_array(indices, length, name);
  }
  const auto count = PySequence_Fast_GET_SIZE(indices.ptr());
  py::array_t<std::int64_t> result(count);
  std::int64_t* out = result.mutable_data();
  for (py::ssize_t i = 0; i < count; ++i) {
    // __index__ may run any code; what it shrinks the list to must not be read.
    if (i >= PySequence_Fast_GET_SIZE(indices.ptr())) {
      throw py::value_error(name + ": the list changed while it was read");
    }
    const auto item =
        py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(indices.ptr(), i));
    const auto position = static_cast<std::size_t>(i);
    out[i] = wrapped(as_index(item, position, name), length, position, name);
  }
  return result;
}

}  // namespace

void register_indices(py::module_& m) {
  m.def("as_indices", &as_indices, py::arg("indices"), py::arg("length"), py::arg("name"));
}

}  // namespace pinfeed::bindings
