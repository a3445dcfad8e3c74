// _core.best_fit, _core.first_fit: plan which documents share a row.
#include "kernels/row_plan.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/problem.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using DocumentLengths = py::array_t<std::int32_t, py::array::c_style>;
using DocumentNumbers = py::array_t<std::int64_t, py::array::c_style>;

// An array that owns the vector.
template <class Item>
py::array_t<Item> as_array(std::vector<Item>&& items) {
  auto owned = std::make_unique<std::vector<Item>>(std::move(items));
  const auto size = static_cast<py::ssize_t>(owned->size());
  const Item* const data = owned->data();
  const py::capsule owner(owned.release(),
                          [](void* vector) { delete static_cast<std::vector<Item>*>(vector); });
  return py::array_t<Item>(size, data, owner);
}

// Throws ValueError unless the documents are as kernels/row_plan.h expects.
void require_documents(const kernels::Documents& documents) {
  const std::span lengths(documents.lengths, documents.count);
  const auto fits = [&](std::int32_t length) {
    return length >= 0 && length <= documents.row_length;
  };
  if (documents.row_length < 1 || documents.max_in_row < 1 ||
      documents.count > std::numeric_limits<std::uint32_t>::max() ||
      !std::ranges::all_of(lengths, fits)) {
    throw wrong_value({"lengths"}, "document lengths must be from 0 to the row length, " +
                                       std::to_string(documents.row_length));
  }
}

void require_order(const DocumentNumbers& order, py::ssize_t count) {
  const std::span numbers(order.data(), static_cast<std::size_t>(order.size()));
  const auto fits = [&](std::int64_t number) { return number >= 0 && number < count; };
  if (order.size() == count && std::ranges::all_of(numbers, fits)) return;
  throw wrong_value({"order"}, "expected the numbers of " + std::to_string(count) + " documents");
}

template <class Plan>
py::tuple planned(const DocumentLengths& lengths, std::int32_t row_length, std::uint32_t max_in_row,
                  const Plan& plan) {
  const kernels::Documents documents{.lengths = lengths.data(),
                                     .count = static_cast<std::size_t>(lengths.size()),
                                     .row_length = row_length,
                                     .max_in_row = max_in_row};
  require_documents(documents);
  kernels::RowPlan rows;
  {
    const py::gil_scoped_release release;  // the caller holds the arrays
    rows = plan(documents);
  }
  return py::make_tuple(as_array(std::move(rows.order)), as_array(std::move(rows.offsets)));
}

}  // namespace

void register_row_plan(py::module_& m) {
  m.def(
      "best_fit",
      [](const DocumentLengths& lengths, std::int32_t row_length, std::uint32_t max_in_row,
         std::optional<std::uint64_t> key) {
        return planned(lengths, row_length, max_in_row, [&](const kernels::Documents& documents) {
          return kernels::best_fit(documents, key ? &*key : nullptr);
        });
      },
      py::arg("lengths").noconvert(), py::arg("row_length"), py::arg("max_in_row"), py::arg("key"));
  m.def(
      "first_fit",
      [](const DocumentLengths& lengths, std::int32_t row_length, std::uint32_t max_in_row,
         const std::optional<DocumentNumbers>& order) {
        if (order) require_order(*order, lengths.size());
        const std::int64_t* const numbers = order ? order->data() : nullptr;
        return planned(lengths, row_length, max_in_row, [&](const kernels::Documents& documents) {
          return kernels::first_fit(documents, numbers);
        });
      },
      py::arg("lengths").noconvert(), py::arg("row_length"), py::arg("max_in_row"),
      py::arg("order"));
}

}  // namespace pinfeed::bindings
