// _core.best_fit, _core.first_fit: which documents share a row.
#include "kernels/row_plan.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using DocumentLengths = py::array_t<std::int32_t, py::array::c_style>;
using DocumentNumbers = py::array_t<std::int64_t, py::array::c_style>;

// The vector as an array that owns it.
template <class Item>
py::array_t<Item> as_array(std::vector<Item>&& items) {
  auto owned = std::make_unique<std::vector<Item>>(std::move(items));
  const auto size = static_cast<py::ssize_t>(owned->size());
  const Item* const data = owned->data();
  const py::capsule owner(owned.release(),
                          [](void* vector) { delete static_cast<std::vector<Item>*>(vector); });
  return py::array_t<Item>(size, data, owner);
}

template <class Plan>
py::tuple planned(const DocumentLengths& lengths, std::int32_t row_length,
                  std::uint32_t most_in_row, const Plan& plan) {
  const kernels::Documents documents{.lengths = lengths.data(),
                                     .count = static_cast<std::size_t>(lengths.size()),
                                     .row_length = row_length,
                                     .most_in_row = most_in_row};
  kernels::RowPlan rows;
  {
    const py::gil_scoped_release release;  // the caller holds the arrays
    rows = plan(documents);
  }
  return py::make_tuple(as_array(std::move(rows.order)), as_array(std::move(rows.offsets)));
}

}  // namespace

// The Python side has checked that all numbers are as kernels/row_plan.h expects them.
void register_row_plan(py::module_& m) {
  m.def(
      "best_fit",
      [](const DocumentLengths& lengths, std::int32_t row_length, std::uint32_t most_in_row,
         std::optional<std::uint64_t> key) {
        return planned(lengths, row_length, most_in_row, [&](const kernels::Documents& documents) {
          return kernels::best_fit(documents, key ? &*key : nullptr);
        });
      },
      py::arg("lengths").noconvert(), py::arg("row_length"), py::arg("most_in_row"),
      py::arg("key"));
  m.def(
      "first_fit",
      [](const DocumentLengths& lengths, std::int32_t row_length, std::uint32_t most_in_row,
         const std::optional<DocumentNumbers>& order) {
        const std::int64_t* const numbers = order ? order->data() : nullptr;
        return planned(lengths, row_length, most_in_row, [&](const kernels::Documents& documents) {
          return kernels::first_fit(documents, numbers);
        });
      },
      py::arg("lengths").noconvert(), py::arg("row_length"), py::arg("most_in_row"),
      py::arg("order"));
}

}  // namespace pinfeed::bindings
