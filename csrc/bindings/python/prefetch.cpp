// _core.prefetch: rows of files asked for before the batch that needs them.
#include <string>
#include <utility>

#include "bindings/python/file_array.h"
#include "bindings/python/module.h"
#include "bindings/python/samples.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

void prefetch(py::object source, py::object offsets, py::object indices, const std::string& name) {
  const FileArray* const file = FileArray::in(source);
  // Of rows that are being found in memory nothing is looked at.
  if (file == nullptr || file->rows.files->seems_hot()) return;
  const Common common = offsets.is_none() ? Common::shape : Common::axes;
  Samples samples(std::move(source), std::move(offsets), std::move(indices), name, common);
  FileReads* const reads = samples.open_reads();
  if (reads == nullptr) return;
  const py::gil_scoped_release unlocked;
  reads->prefetch();
}

}  // namespace

void register_prefetch(py::module_& m) {
  m.def("prefetch", &prefetch, py::arg("source"), py::arg("offsets"), py::arg("indices"),
        py::arg("name"));
}

}  // namespace pinfeed::bindings
