#include "bindings/python/mapped_file.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <string>

#include "bindings/python/imported.h"
#include "bindings/python/problem.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// The object between a view of as_strided, or sliding_window_view, and its array.
py::handle strided_base() {
  return once([] {
    const py::object as_strided = imported("numpy.lib.stride_tricks", "as_strided");
    const py::object view = as_strided(py::array_t<double>(1));
    return py::reinterpret_borrow<py::object>(py::type::handle_of(view.attr("base")));
  });
}

// The memmap whose file holds the array's memory, or null. A view's base is its array.
PyObject* find_memmap(py::handle array) {
  PyObject* const memmap = once([] { return imported("numpy", "memmap"); }).ptr();
  PyObject* owner = array.ptr();
  PyObject* found = nullptr;
  while (owner != nullptr) {
    if (!py::isinstance<py::array>(owner)) {
      if (PyMemoryView_Check(owner)) {  // from np.frombuffer, or np.asarray(memoryview)
        owner = PyMemoryView_GET_BUFFER(owner)->obj;
        continue;
      }
      if (Py_TYPE(owner) != reinterpret_cast<PyTypeObject*>(strided_base().ptr())) break;
      owner = py::handle(owner).attr("base").ptr();  // kept alive by its owner
      continue;
    }
    // The last memmap in the chain: memmaps that are views inherit the offset of the first.
    if (PyObject_TypeCheck(owner, reinterpret_cast<PyTypeObject*>(memmap))) found = owner;
    owner = py::detail::array_proxy(owner)->base;
  }
  // Results computed from memmaps are memmaps too, without a file. `_mmap` is NumPy's name.
  return found == nullptr || py::handle(found).attr("_mmap").is_none() ? nullptr : found;
}

// The granularity of the positions of mappings in their files.
std::int64_t granularity() {
  return once([] { return imported("mmap", "ALLOCATIONGRANULARITY").cast<std::int64_t>(); });
}

}  // namespace

void MappedFiles::check(py::handle array) {
  PyObject* const owner = find_memmap(array);
  if (owner == nullptr || std::ranges::find(checked_, owner) != checked_.end()) return;
  const py::handle memmap(owner);
  const py::object mapping = memmap.attr("_mmap");
  const auto offset = memmap.attr("offset").cast<std::int64_t>();
  // A mapping begins at or before its array.
  const std::int64_t start = offset - offset % granularity();
  const std::int64_t end = start + static_cast<std::int64_t>(py::len(mapping));
  const auto size = mapping.attr("size")().cast<std::int64_t>();
  if (size < end) {
    throw Problem(PyExc_OSError, {py::str(memmap.attr("filename"))},
                  "the file was cut short: it has " + std::to_string(size) +
                      " bytes, but its array ends at byte " + std::to_string(end),
                  "", "write or download it again");
  }
  checked_.push_back(owner);
}

void register_mapped_file(py::module_& m) {
  m.def(
      "memmap_under",
      [](const py::array& array) -> py::object {
        PyObject* const found = find_memmap(array);
        return found == nullptr ? py::none() : py::reinterpret_borrow<py::object>(found);
      },
      py::arg("array"));
  m.def(
      "require_whole_file", [](const py::array& array) { MappedFiles().check(array); },
      py::arg("array"));
}

}  // namespace pinfeed::bindings
