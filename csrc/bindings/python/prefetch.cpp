// _core.prefetch: rows of files asked for before the batch that needs them.
#include <string>
#include <utility>

#include "bindings/python/file_array.h"
#include "bindings/python/module.h"
#include "bindings/python/samples.h"
#include "bindings/python/sequences.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

void prefetch(py::object source, py::object offsets, py::object indices, const std::string& name) {
  const FileArray* const file = FileArray::in(source);
  // Of rows that are being found in memory nothing is looked at.
  if (file == nullptr || file->rows.files->seems_hot()) return;
  if (offsets.is_none()) {
    const Samples samples(std::move(source), std::move(indices), name);
    if (samples.reads() == nullptr) return;
    const py::gil_scoped_release unlocked;
    samples.reads()->prefetch();
  } else {
    Sequences(std::move(source), std::move(offsets), std::move(indices), name).prefetch();
  }
}

}  // namespace

void register_prefetch(py::module_& m) {
  m.def("prefetch", &prefetch, py::arg("source"), py::arg("offsets"), py::arg("indices"),
        py::arg("name"));
}

}  // namespace pinfeed::bindings
