// Offsets of sequences in one array; and several arrays in memory as one, such as the chunks of a
// column.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "kernels/lookahead.h"
#include "runtime/part_ends.h"

namespace pinfeed::bindings {

// The items of an int32 or int64 array with any stride, which must outlive this.
class Offsets {
 public:
  Offsets(pybind11::handle array, const std::string& name)
      : view_(view_array(array, Subject{name + ": offsets"})) {
    const bool integers = view_.dtype == kInt64 || view_.dtype == kInt32;
    if (!integers || view_.axes() != 1 || view_.shape[0] == 0) {
      throw wrong_type({name}, "offsets must be int64 or int32 with shape (N + 1,), got " +
                                   view_.dtype.name() + " " + shape_text(view_.shape));
    }
  }

  std::int64_t samples() const { return view_.shape[0] - 1; }

  // Prefetches an item that will be read soon.
  void expect(std::int64_t i) const { kernels::prefetch_line(view_.data + i * view_.stride(0)); }

  std::int64_t operator[](std::int64_t i) const {
    const std::byte* const entry = view_.data + i * view_.stride(0);
    if (view_.dtype == kInt64) return load<std::int64_t>(entry);
    return load<std::int32_t>(entry);
  }

 private:
  template <class Integer>
  static Integer load(const std::byte* from) {
    Integer value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }

  ArrayView view_;
};

class MappedFiles;

// Parts whose rows have one dtype and one shape. With offsets a sample is a sequence of rows, else
// a row.
struct PartArrays {
  // Throws TypeError and ValueError for parts that differ, and for no parts.
  // `offsets`: None, or for each part the offsets of its sequences.
  PartArrays(pybind11::tuple arrays, pybind11::object offsets);

  pybind11::tuple arrays;  // keeps the memory of the views alive
  pybind11::object offset_arrays;
  std::vector<ArrayView> views;
  std::vector<Offsets> offsets;  // per part, if samples are sequences
  runtime::PartEnds ends;        // of samples
  bool same_strides = true;      // of the rows of all parts

  void check_files(std::size_t part, MappedFiles& files) const;
};

}  // namespace pinfeed::bindings
