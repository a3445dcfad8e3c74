// Arrays in memory that are seen as one: the chunks of a column, for instance.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/offsets.h"
#include "runtime/part_ends.h"

namespace pinfeed::bindings {

class MappedFiles;

// The rows of all parts have one dtype and one shape. With offsets a sample is a sequence of rows,
// else it is a row.
struct PartArrays {
  // Throws TypeError and ValueError for parts that are not alike, and for none.
  // `offsets`: None, or for each part where its sequences begin, and the end of the last.
  PartArrays(pybind11::tuple arrays, pybind11::object offsets);

  pybind11::tuple arrays;  // keeps alive what the views look at
  pybind11::object offset_arrays;
  std::vector<ArrayView> views;
  std::vector<Offsets> offsets;  // of each part, if samples are sequences
  runtime::PartEnds ends;        // of samples
  bool same_strides = true;      // of the rows of all parts

  void check_files(std::size_t part, MappedFiles& files) const;
};

}  // namespace pinfeed::bindings
