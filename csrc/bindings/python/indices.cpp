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

[[noreturn]] void refuse(const std::string& index, std::size_t position, std::int64_t length,
                         const std::string& name) {
  throw py::index_error(name + ": index " + index + " at position " + std::to_string(position) +
                        " is out of range for " + std::to_string(length) + " samples");
}

std::int64_t as_index(py::handle item, std::size_t position, const std::string& name) {
  PyObject* object = item.ptr();
  const bool is_int = PyLong_Check(object) && !PyBool_Check(object);  // True is a mask to NumPy
  if (is_int) {
    const long long value = PyLong_AsLongLong(object);
    if (value != -1 || PyErr_Occurred() == nullptr) return value;
    PyErr_Clear();
  }
  const auto kept = py::reinterpret_borrow<py::object>(item);  // what runs below may drop it
  if (is_int) {
    throw py::index_error(name + ": index " + std::string(py::str(item)) + " at position " +
                          std::to_string(position) + " does not fit in 64 bits");
  }
  if (PyIndex_Check(object) && !PyBool_Check(object)) {
    MappedFiles().check(item);
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object));
    if (number) return as_index(number, position, name);
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
    PyErr_Clear();  // an array of several, say
  }
  throw py::type_error(name + ": expected integers, got " +
                       std::string(py::str(py::type::handle_of(item).attr("__name__"))) +
                       " at position " + std::to_string(position) +
                       (PySequence_Check(object) && !PyUnicode_Check(object)
                            ? "; if it is a batch, its sampler goes to "
                              "DataLoader as batch_sampler=, not sampler="
                            : ""));
}

// One pass without branches; which index is outside is looked for only if one is.
template <class Integer>
void convert(const ArrayView& view, std::int64_t length, const std::string& name,
             std::int64_t* out) {
  const std::int64_t count = view.shape[0];
  const std::int64_t step = view.stride(0);
  const auto read = [data = view.data, step](std::int64_t i) {
    Integer value;
    std::memcpy(&value, data + i * step, sizeof(Integer));
    return value;
  };
  const auto is_inside = [length](Integer value) {
    return std::cmp_greater_equal(value, -length) && std::cmp_less(value, length);
  };
  bool all_inside = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const Integer value = read(i);
    all_inside &= is_inside(value);
    const auto index = static_cast<std::int64_t>(value);
    out[i] = index + (index < 0 ? length : 0);
  }
  for (std::int64_t i = 0; !all_inside && i < count; ++i) {
    // Another thread may write to the indices meanwhile, so the last one ends this in any case.
    if (const Integer value = read(i); !is_inside(value) || i + 1 == count) {
      refuse(std::to_string(value), static_cast<std::size_t>(i), length, name);
    }
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
