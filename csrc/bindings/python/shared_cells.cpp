// _core.compare_exchange: one step on a number that several processes share.
#include <pybind11/numpy.h>

#include <cstdint>

#include "bindings/python/module.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using Cells = py::array_t<std::int64_t, py::array::c_style>;

bool compare_exchange(Cells cells, py::ssize_t place, std::int64_t expected, std::int64_t desired) {
  return __atomic_compare_exchange_n(cells.mutable_data(place), &expected, desired, false,
                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

}  // namespace

void register_shared_cells(py::module_& m) {
  m.def("compare_exchange", &compare_exchange, py::arg("cells").noconvert(), py::arg("place"),
        py::arg("expected"), py::arg("desired"));
}

}  // namespace pinfeed::bindings
