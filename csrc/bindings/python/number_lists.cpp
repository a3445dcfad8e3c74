#include "bindings/python/number_lists.h"

#include <pybind11/critical_section.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "bindings/python/imported.h"
#include "runtime/buffer_pool.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// Reads Python's one-digit ints, which most tokens are, without a call.
bool small_int(PyObject* object, std::int64_t* value) {
  if (!PyLong_CheckExact(object)) return false;
  auto* number = reinterpret_cast<PyLongObject*>(object);
#if PY_VERSION_HEX >= 0x030C0000
  if (!PyUnstable_Long_IsCompact(number)) return false;
  *value = PyUnstable_Long_CompactValue(number);
#else
  const Py_ssize_t signed_digits = Py_SIZE(number);
  if (signed_digits < -1 || signed_digits > 1) return false;
  *value = signed_digits * static_cast<std::int64_t>(number->ob_digit[0]);
#endif
  return true;
}

std::string at(std::size_t position) { return " at position " + std::to_string(position); }

// A number that is not a small int.
class Number {
 public:
  enum class Kind { boolean, integer, real };

  Number(py::handle object, std::size_t position, const Subject& subject) {
    PyObject* number = object.ptr();
    if (PyBool_Check(number)) {
      kind = Kind::boolean;
      integer = number == Py_True;
    } else if (PyFloat_Check(number)) {
      real = PyFloat_AS_DOUBLE(number);
    } else if (PyLong_Check(number)) {
      set_integer(object, position, subject);
    } else {
      convert(object, position, subject);
    }
  }

  Kind kind = Kind::real;
  std::int64_t integer = 0;
  double real = 0;

 private:
  void set_integer(py::handle object, std::size_t position, const Subject& subject) {
    kind = Kind::integer;
    int overflow = 0;
    integer = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow != 0) {
      throw wrong_value(subject, "64-bit integers", std::string(py::str(object)) + at(position));
    }
  }

  // NumPy's scalars, and other objects that are a single number. May run any code.
  void convert(py::handle object, std::size_t position, const Subject& subject) {
    PyNumberMethods* methods = Py_TYPE(object.ptr())->tp_as_number;
    const bool single = !PySequence_Check(object.ptr()) && methods != nullptr;
    const py::handle numpy_bool = once([] { return imported("numpy", "bool"); });
    const py::handle numpy_complex = once([] { return imported("numpy", "complexfloating"); });
    if (single && py::isinstance(object, numpy_bool)) {
      kind = Kind::boolean;
      integer = PyObject_IsTrue(object.ptr());
      return;
    }
    if (single && methods->nb_index != nullptr) {
      if (const auto number = if_number(PyNumber_Index(object.ptr()))) {
        return set_integer(number, position, subject);
      }
    }
    const bool is_complex = py::isinstance(object, numpy_complex);
    if (single && methods->nb_float != nullptr && !is_complex) {
      if (const auto number = if_number(PyNumber_Float(object.ptr()))) {
        real = PyFloat_AS_DOUBLE(number.ptr());
        return;
      }
    }
    const bool nested = PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr());
    throw wrong_type(
        subject, "a list of numbers",
        std::string(py::str(py::type::handle_of(object).attr("__name__"))) + at(position),
        nested ? "np.asarray(list) converts nested lists of one length; np.concatenate(list) joins "
                 "others, and [len(x) for x in list] in another entry keeps their lengths"
               : "");
  }

  // Arrays have the methods too, and raise one of these errors unless they hold a single number.
  static py::object if_number(PyObject* result) {
    auto number = py::reinterpret_steal<py::object>(result);
    if (!number && !PyErr_ExceptionMatches(PyExc_TypeError) &&
        !PyErr_ExceptionMatches(PyExc_ValueError)) {
      throw py::error_already_set();
    }
    PyErr_Clear();
    return number;
  }
};

}  // namespace

NumberLists::NumberLists(std::size_t numbers)
    : memory_(runtime::BufferPool::instance().acquire(numbers * sizeof(Item))) {
  next_ = static_cast<Item*>(memory_);
  end_ = next_ + numbers;
}

NumberLists::~NumberLists() { runtime::BufferPool::instance().release(memory_); }

Numbers NumberLists::read(py::handle list, const Subject& subject) {
  const py::scoped_critical_section alone(list);  // released while a number is converted
  const std::size_t count = size(list);
  Item* const items = next_;
  const auto changed = [&] { return wrong_value(subject, "the list changed while it was read"); };
  if (count > static_cast<std::size_t>(end_ - items)) throw changed();
  Numbers numbers{reinterpret_cast<const std::byte*>(items), static_cast<std::int64_t>(count),
                  kInt64};
  std::int64_t smallest = numbers.smallest, largest = numbers.largest;
  std::size_t bools = 0;
  bool real = false;
  const auto add = [&](std::size_t i, std::int64_t integer) {
    smallest = std::min(smallest, integer);
    largest = std::max(largest, integer);
    if (real) {
      items[i].real = static_cast<double>(integer);
    } else {
      items[i].integer = integer;
    }
  };
  for (std::size_t i = 0; i < count; ++i) {
    // No code runs for these, so the list does not change.
    PyObject* const* const objects = PySequence_Fast_ITEMS(list.ptr());
    for (std::int64_t integer = 0; i < count && small_int(objects[i], &integer); ++i) {
      add(i, integer);
    }
    if (i == count) break;
    const Number number = [&] {
      const auto held = py::reinterpret_borrow<py::object>(objects[i]);
      return Number(held, i, subject);
    }();
    if (count != size(list)) throw changed();  // by a conversion, or before the end
    if (number.kind != Number::Kind::real) {
      bools += number.kind == Number::Kind::boolean;
      add(i, number.integer);
      continue;
    }
    if (!real) {  // all numbers before were integers
      real = true;
      for (std::size_t j = 0; j < i; ++j) items[j].real = static_cast<double>(items[j].integer);
    }
    items[i].real = number.real;
    if (std::isfinite(number.real)) {
      numbers.largest_real = std::max(numbers.largest_real, std::fabs(number.real));
    }
  }
  numbers.smallest = smallest;
  numbers.largest = largest;
  next_ += count;
  if (real) {
    numbers.dtype = kFloat64;
  } else if (bools == count && count > 0) {
    numbers.dtype = kBool;
    auto* bytes = reinterpret_cast<std::byte*>(items);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(items[i].integer);
  }
  return numbers;
}

}  // namespace pinfeed::bindings
