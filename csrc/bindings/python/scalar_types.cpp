#include "bindings/python/scalar_types.h"

#include <algorithm>

#include "dispatch/dispatch.h"
#include "kernels/item.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

std::optional<DType> find_named(const std::string& dtype) {
  const auto found = std::ranges::find(kernels::kScalars, dtype, &kernels::Scalar::name);
  if (found == kernels::kScalars.end()) return std::nullopt;
  return DType{static_cast<ScalarType>(found - kernels::kScalars.begin())};
}

// A result, or nothing if Python has set an error, which is cleared.
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
    const auto number = unless_error(PyLong_AsDouble(value));  // an int beyond the range of floats
    return number ? kernels::item_of(*number, 0, dtype.type) : std::nullopt;
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return kernels::item_of_integer(number, dtype.type);
  const auto large = unless_error(PyLong_AsUnsignedLongLong(value));
  return large ? kernels::item_of_integer(*large, dtype.type) : std::nullopt;
}

}  // namespace

kernels::Cast Types::cast() const {
  return dispatch::active_isa().casts->find(from.type, to.type, scale);
}

Types find_types(DType from, const std::string& to, const Subject& subject, Scale scale,
                 std::optional<DType> shown) {
  const std::string given = shown.value_or(from).name();
  const std::optional<DType> target = find_named(to);
  std::string hint;
  if (target) {
    if (scale && !kernels::takes_scale(from.type, target->type)) {
      throw wrong_type(subject, "integers to scale", given,
                       "leave scale out, and multiply the batch");
    }
    const Types types{from, *target, scale.value_or(1)};
    if (types.cast()) return types;
    hint = "cast them in the dataset if losing information is fine";
  }
  throw wrong_type(subject, "numbers that can be cast to " + to, given, hint);
}

DType dtype_named(const std::string& dtype, const Subject& subject) {
  if (const std::optional<DType> found = find_named(dtype)) return *found;
  throw wrong_type(subject, "dtype must be numeric or bool, got " + dtype);
}

void require_numpy_has(DType dtype, const std::string& function) {
  if (dtype != kBfloat16) return;
  throw wrong_type({function}, "NumPy has no bfloat16", "",
                   "pass tensors, or dtype float16 or float32");
}

bool may_not_fit(DType from, DType to) {
  if (from.is_integer() && to == kFloat16)
    return from == DType{ScalarType::uint16} || from.item_size() > 2;
  if (!from.is_integer() || !to.is_integer()) return false;
  const std::size_t from_size = from.item_size(), to_size = to.item_size();
  if (from.kind() == to.kind()) return to_size < from_size;
  return from.kind() == ScalarKind::signed_int || to_size <= from_size;
}

void require_integers_fit(const std::byte* data, std::span<const std::int64_t> shape,
                          const std::int64_t* strides, const Types& types, const Subject& subject) {
  if (!shape.empty()) {
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      require_integers_fit(data + i * strides[0], shape.subspan(1), strides + 1, types, subject);
    }
    return;
  }
  std::uint64_t bits = 0;
  if (types.cast()(data, 1, &bits)) return;
  const bool is_signed = types.from.kind() == ScalarKind::signed_int;
  find_types(types.from, is_signed ? "int64" : "uint64", subject).cast()(data, 1, &bits);
  const std::string value =
      is_signed ? std::to_string(static_cast<std::int64_t>(bits)) : std::to_string(bits);
  throw wrong_value(subject, "integers that " + types.to.name() + " can hold", value,
                    "pass a wider dtype");
}

kernels::Fill fill_value(py::handle value, DType dtype, const std::string& name) {
  PyObject* const number = value.ptr();
  if (!PyLong_Check(number) && !PyFloat_Check(number) && !PyComplex_Check(number)) {
    throw wrong_type({""}, name + " must be a number, got " + std::string(py::repr(value)));
  }
  if (const auto item = item_of(number, dtype)) return kernels::Fill(*item);
  throw wrong_value({""}, name + " must be a value that " + dtype.name() + " can hold, got " +
                              std::string(py::repr(value)));
}

std::vector<std::uint8_t> fill_pixel(const py::sequence& values, DType dtype, std::int64_t channels,
                                     const std::string& name) {
  const auto count = static_cast<std::size_t>(channels);
  const std::size_t given = values.size();  // once, because a list may grow
  if (given != 1 && given != count) {
    throw wrong_value({""}, name + " must be one number or one for each of " +
                                std::to_string(channels) + " channels, got " +
                                std::to_string(given));
  }
  std::vector<std::uint8_t> pixel(count * dtype.item_size());
  const std::size_t repeats = given == 1 ? count : 1;
  for (std::size_t c = 0; c < given; ++c) {
    const py::object value = values[c];
    if (PyLong_Check(value.ptr()) && !item_of(value.ptr(), dtype)) {
      throw wrong_value({""},
                        name + " must be a value that the samples' " + dtype.name() +
                            " can hold, got " + std::string(py::repr(value)),
                        "", "pass another value, or samples of a wider dtype");
    }
    fill_value(value, dtype, name).write(pixel.data() + c * dtype.item_size(), repeats, false);
  }
  return pixel;
}

}  // namespace pinfeed::bindings
