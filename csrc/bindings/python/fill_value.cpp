#include "bindings/python/fill_value.h"

#include <optional>

#include "kernels/item.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// A result, or nothing where Python has set an error, which goes.
template <class Number>
std::optional<Number> unless_error(Number number) {
  if (PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  return std::nullopt;
}

std::optional<kernels::Item> item_of(PyObject* value, DType dtype) {
  if (PyComplex_Check(value)) {
    const Py_complex number = PyComplex_AsCComplex(value);
    if (dtype.kind() != ScalarKind::complex) return std::nullopt;
    return kernels::item_of(number.real, number.imag, dtype.type);
  }
  if (PyFloat_Check(value)) return kernels::item_of(PyFloat_AS_DOUBLE(value), 0, dtype.type);
  if (!dtype.is_integer() && dtype != kBool) {
    const auto number = unless_error(PyLong_AsDouble(value));  // an int beyond all floats
    return number ? kernels::item_of(*number, 0, dtype.type) : std::nullopt;
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return kernels::item_of_integer(number, dtype.type);
  const auto large = unless_error(PyLong_AsUnsignedLongLong(value));
  return large ? kernels::item_of_integer(*large, dtype.type) : std::nullopt;
}

}  // namespace

kernels::Fill fill_value(py::handle value, DType dtype, const std::string& name) {
  PyObject* const number = value.ptr();
  if (!PyLong_Check(number) && !PyFloat_Check(number) && !PyComplex_Check(number)) {
    throw py::type_error(name + " must be a number, got " + std::string(py::repr(value)));
  }
  if (const auto item = item_of(number, dtype)) return kernels::Fill(*item);
  throw py::value_error(name + " must be a value that " + dtype.name() + " can hold, got " +
                        std::string(py::repr(value)));
}

std::vector<std::uint8_t> fill_pixel(const py::sequence& values, DType dtype, std::int64_t channels,
                                     const std::string& name) {
  const auto count = static_cast<std::size_t>(channels);
  const std::size_t given = values.size();  // once, for a list may grow
  if (given != 1 && given != count) {
    throw py::value_error(name + " must be one number or one for each of " +
                          std::to_string(channels) + " channels, got " + std::to_string(given));
  }
  std::vector<std::uint8_t> pixel(count * dtype.item_size());
  const std::size_t repeats = given == 1 ? count : 1;
  for (std::size_t c = 0; c < given; ++c) {
    const py::object value = values[c];
    fill_value(value, dtype, name).write(pixel.data() + c * dtype.item_size(), repeats, false);
  }
  return pixel;
}

}  // namespace pinfeed::bindings
