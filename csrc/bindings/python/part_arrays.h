// Arrays in memory that are seen as one: the chunks of a column, for instance.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/part_ends.h"

namespace pinfeed::bindings {

// All rows have one dtype, one shape and the same strides.
struct PartArrays {
  // Throws TypeError and ValueError for parts that are not alike, and for none.
  explicit PartArrays(pybind11::tuple arrays);

  pybind11::tuple arrays;  // keeps alive what the views look at
  std::vector<ArrayView> views;
  PartEnds ends;

  // Null for an object of any other type.
  static const PartArrays* in(pybind11::handle object);
};

}  // namespace pinfeed::bindings
