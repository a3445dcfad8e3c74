#include "bindings/python/fill_value.h"

#include <cmath>

#include "kernels/round.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using dlpack::TypeCode;
using kernels::Fill;

// One padding value on its way into one dtype.
class PaddingValue {
 public:
  PaddingValue(py::handle value, DType dtype, const std::string& name)
      : value_(value), dtype_(dtype), name_(name) {}

  Fill to_fill() const {
    switch (dtype_.code) {
      case TypeCode::boolean:
      case TypeCode::unsigned_int:
        return unsigned_item();
      case TypeCode::signed_int:
        return signed_item();
      case TypeCode::floating:
      case TypeCode::bfloat:
        return real_item();
      case TypeCode::complex:
        return complex_item();
    }
    throw does_not_fit();
  }

 private:
  py::value_error does_not_fit() const {
    return py::value_error(name_ + " must be a value that " + dtype_.name() + " can hold, got " +
                           std::string(py::repr(value_)));
  }

  // A float that is a whole number will do.
  py::int_ whole() const {
    if (PyFloat_Check(value_.ptr())) {
      const double number = PyFloat_AS_DOUBLE(value_.ptr());
      if (!std::isfinite(number) || number != std::floor(number)) throw does_not_fit();
      return py::reinterpret_steal<py::int_>(PyLong_FromDouble(number));
    }
    if (!PyLong_Check(value_.ptr())) throw does_not_fit();
    return py::reinterpret_borrow<py::int_>(value_);
  }

  Fill unsigned_item() const {
    const auto item = PyLong_AsUnsignedLongLong(whole().ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw does_not_fit();
    }
    const int bits = dtype_.code == TypeCode::boolean ? 1 : dtype_.bits;
    if (bits < 64 && item >> bits != 0) throw does_not_fit();
    return little_end(item);
  }

  Fill signed_item() const {
    int overflow = 0;
    const auto item = PyLong_AsLongLongAndOverflow(whole().ptr(), &overflow);
    // What is left of a number that fits is its sign.
    const auto rest = item >> (dtype_.bits - 1);
    if (overflow != 0 || (rest != 0 && rest != -1)) throw does_not_fit();
    return little_end(static_cast<unsigned long long>(item));
  }

  // An integer's low bytes come first on every machine pinfeed is built for.
  Fill little_end(unsigned long long item) const { return Fill(&item, dtype_.item_size()); }

  Fill real_item() const {
    if (!PyFloat_Check(value_.ptr()) && !PyLong_Check(value_.ptr())) throw does_not_fit();
    return real_part(as_double(), dtype_);
  }

  double as_double() const {
    const double number = PyFloat_AsDouble(value_.ptr());
    if (PyErr_Occurred() != nullptr) {  // an int beyond all floats
      PyErr_Clear();
      throw does_not_fit();
    }
    return number;
  }

  Fill real_part(double number, DType dtype) const {
    if (dtype.bits == 64) return Fill(&number, sizeof(number));
    const auto single = static_cast<float>(number);
    const auto require_finite = [&](bool finite) {
      if (!finite && std::isfinite(number)) throw does_not_fit();
    };
    if (dtype.bits == 32) {
      require_finite(std::isfinite(single));
      return Fill(&single, sizeof(single));
    }
    const bool brain = dtype.code == TypeCode::bfloat;
    const std::uint16_t half =
        brain ? kernels::to_bfloat16_bits(single) : kernels::to_float16_bits(single);
    const unsigned infinity = brain ? 0x7f80 : 0x7c00;
    require_finite((half & 0x7fffu) < infinity);
    return Fill(&half, sizeof(half));
  }

  Fill complex_item() const {
    const Py_complex number = PyComplex_Check(value_.ptr()) ? PyComplex_AsCComplex(value_.ptr())
                                                            : Py_complex{as_double(), 0};
    if (dtype_.bits == 128) return Fill(&number, sizeof(number));
    const float parts[] = {static_cast<float>(number.real), static_cast<float>(number.imag)};
    if ((!std::isfinite(parts[0]) && std::isfinite(number.real)) ||
        (!std::isfinite(parts[1]) && std::isfinite(number.imag))) {
      throw does_not_fit();
    }
    return Fill(parts, sizeof(parts));
  }

  py::handle value_;
  DType dtype_;
  const std::string& name_;
};

}  // namespace

Fill fill_value(py::handle value, DType dtype, const std::string& name) {
  PyObject* number = value.ptr();
  if (!PyLong_Check(number) && !PyFloat_Check(number) && !PyComplex_Check(number)) {
    throw py::type_error(name + " must be a number, got " + std::string(py::repr(value)));
  }
  return PaddingValue(value, dtype, name).to_fill();
}

}  // namespace pinfeed::bindings
