// Samplers: permutations without a table, and draws in proportion to weights.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>

#include "bindings/python/parallel.h"
#include "bindings/python/problem.h"
#include "kernels/permutation.h"
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

}  // namespace

void register_random_order(py::module_& m) {
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
}

}  // namespace pinfeed::bindings
