// Samplers: permutations without a table, draws in proportion to weights, and plans of which
// documents share a row.
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

#include "bindings/python/parallel.h"
#include "bindings/python/problem.h"
#include "kernels/permutation.h"
#include "kernels/row_plan.h"
#include "kernels/weighted.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// C-contiguous and without conversion: the Python side passes float64.
using Weights = py::array_t<double, py::array::c_style>;
using Table = py::array_t<std::uint64_t, py::array::c_style>;

// A new array, written by fill(data). An index takes as long as copying a cache line.
template <class Item, class Fill>
py::array_t<Item> filled(std::size_t count, const Fill& fill) {
  py::array_t<Item> out(static_cast<py::ssize_t>(count));
  Item* data = out.mutable_data();
  const Unlocked unlocked(takes_long(count * 64));
  fill(data);
  return out;
}

void require_range(std::uint64_t start, std::uint64_t stop, std::uint64_t limit) {
  if (start <= stop && stop <= limit) return;
  throw wrong_value({""}, "0 <= start <= stop <= " + std::to_string(limit),
                    std::to_string(start) + " and " + std::to_string(stop));
}

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

void register_samplers(py::module_& m) {
  m.def(
      "permuted",
      [](std::uint64_t size, const kernels::Permutation::Keys& keys, std::uint64_t start,
         std::uint64_t stop) {
        constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62;
        if (size > kMaxSize) {
          throw wrong_value({"permuted"}, "a size of at most 2**62", std::to_string(size));
        }
        require_range(start, stop, size);
        return filled<std::int64_t>(stop - start, [&](std::int64_t* out) {
          kernels::Permutation(size, keys).map(start, stop - start, out);
        });
      },
      py::arg("size"), py::arg("keys"), py::arg("start"), py::arg("stop"));
  m.def(
      "alias_table",
      [](const Weights& weights) {
        const double* data = weights.data();
        const auto count = static_cast<std::size_t>(weights.size());
        if (count == 0) throw wrong_value({"alias_table"}, "at least one weight", "none");
        // NumPy's memory of this size uses huge pages where they exist, which speeds up random
        // access.
        Table table({weights.size(), py::ssize_t{2}});
        auto* shares = reinterpret_cast<kernels::AliasShare*>(table.mutable_data());
        {
          // the caller holds the weights; nothing else refers to the table
          py::gil_scoped_release release;
          kernels::build_alias_table(data, count, shares);
        }
        return table;
      },
      py::arg("weights").noconvert());
  m.def(
      "draw_from_table",
      [](const Table& table, std::uint64_t key, std::uint64_t start, std::uint64_t stop) {
        if (table.ndim() != 2 || table.shape(0) == 0 || table.shape(1) != 2) {
          throw wrong_value({"draw_from_table"}, "expected a table from alias_table");
        }
        require_range(start, stop, ~std::uint64_t{0});
        const auto* shares = reinterpret_cast<const kernels::AliasShare*>(table.data());
        const auto count = static_cast<std::size_t>(table.shape(0));
        return filled<std::int64_t>(stop - start, [&](std::int64_t* out) {
          kernels::draw_from_table(shares, count, key, start, stop - start, out);
        });
      },
      py::arg("table").noconvert(), py::arg("key"), py::arg("start"), py::arg("stop"));
  m.def(
      "draw_keys",
      [](const Weights& weights, std::uint64_t key, std::uint64_t first) {
        const double* data = weights.data();
        const auto count = static_cast<std::size_t>(weights.size());
        return filled<double>(
            count, [&](double* out) { kernels::draw_keys(data, count, key, first, out); });
      },
      py::arg("weights").noconvert(), py::arg("key"), py::arg("first"));
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
