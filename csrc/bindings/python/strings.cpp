// _core.strings: sequences of bytes as Python's strings.
#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>
#include <utility>

#include "bindings/python/samples.h"
#include "kernels/lookahead.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

constexpr std::size_t kStringsAhead = 8;  // strings whose first bytes are on their way

void require_bytes(const Samples& samples, const std::string& name) {
  bool is_joined = samples.axes() == 1 && samples.dtype(0) == kUint8;
  for (std::size_t i = 0; is_joined && i < samples.count(); ++i) {
    is_joined = samples.shape(i)[0] < 2 || samples.strides(i)[0] == 1;
  }
  if (!is_joined) throw py::type_error(name + ": expected strings of adjacent bytes");
}

PyObject* as_string(const std::byte* bytes, std::int64_t size, bool is_text) {
  const char* const first = reinterpret_cast<const char*>(bytes);
  return is_text ? PyUnicode_DecodeUTF8(first, size, nullptr)
                 : PyBytes_FromStringAndSize(first, size);
}

[[noreturn]] void refuse(const Subject& subject) {
  if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) throw py::error_already_set();
  const py::error_already_set error;
  throw wrong_value(subject, py::str(error.value()), "", "string_type=bytes takes any bytes");
}

py::list strings(py::object source, py::object offsets, py::object indices, bool is_text,
                 const std::string& name, std::size_t threads) {
  Samples samples(std::move(source), std::move(offsets), std::move(indices), name, Common::axes);
  require_bytes(samples, name);
  const std::size_t count = samples.count();
  samples.plan_reads(true, threads);
  py::list result(count);
  const auto make = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (i + kStringsAhead < end) kernels::prefetch_line(samples.data(i + kStringsAhead));
      PyObject* const string = as_string(samples.data(i), samples.shape(i)[0], is_text);
      if (string == nullptr) refuse(Subject{name, static_cast<std::int64_t>(i)});
      PyList_SET_ITEM(result.ptr(), static_cast<py::ssize_t>(i), string);
    }
  };
  write_when_read(samples.reads(), count, threads, make);
  return result;
}

}  // namespace

void register_strings(py::module_& m) {
  m.def("strings", &strings, py::arg("source"), py::arg("offsets"), py::arg("indices"),
        py::arg("is_text"), py::arg("name"), py::arg("threads"));
}

}  // namespace pinfeed::bindings
