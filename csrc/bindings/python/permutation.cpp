// _core.permuted: a stretch of a permutation that stores nothing.
#include "kernels/permutation.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/python/module.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// The Python side has checked that 0 <= start <= stop <= size <= 2^62.
py::array_t<std::int64_t> permuted(std::uint64_t size, const kernels::Permutation::Keys& keys,
                                   std::uint64_t start, std::uint64_t stop) {
  py::array_t<std::int64_t> out(static_cast<py::ssize_t>(stop - start));
  std::int64_t* data = out.mutable_data();
  py::gil_scoped_release release;  // nothing else can have the array yet
  kernels::Permutation(size, keys).map(start, stop - start, data);
  return out;
}

}  // namespace

void register_permutation(py::module_& m) {
  m.def("permuted", &permuted, py::arg("size"), py::arg("keys"), py::arg("start"), py::arg("stop"));
}

}  // namespace pinfeed::bindings
