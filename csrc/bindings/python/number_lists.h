// Converts lists of Python numbers, as tokenizers return them, to arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "bindings/python/array_view.h"

namespace pinfeed::bindings {

// One converted list.
struct Numbers {
  const std::byte* data;
  std::int64_t count;
  DType dtype;  // int64; bool if all are bools; float64 if one is a float
  // The range of its integers.
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  std::int64_t largest = std::numeric_limits<std::int64_t>::min();
  double largest_real = 0;  // the largest magnitude of its finite floats
};

// Memory for the numbers of a batch's lists, concatenated.
class NumberLists {
 public:
  // `numbers`: their total number.
  explicit NumberLists(std::size_t numbers);
  ~NumberLists();
  NumberLists(const NumberLists&) = delete;
  NumberLists& operator=(const NumberLists&) = delete;

  static bool is_list(pybind11::handle object) {
    return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
  }

  static std::size_t size(pybind11::handle list) {
    return static_cast<std::size_t>(PyList_Check(list.ptr()) ? PyList_Size(list.ptr())
                                                             : PyTuple_Size(list.ptr()));
  }

  // Converts a list or tuple of bools, ints and floats, Python's or NumPy's. Throws TypeError for
  // an item that is not a number, ValueError for an integer beyond int64, each with its position.
  Numbers read(pybind11::handle list, const Subject& subject);

 private:
  union Item {
    std::int64_t integer;
    double real;
  };

  Item* next_;
  Item* end_;
  void* memory_;
};

}  // namespace pinfeed::bindings
