// The files under memory-mapped arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace pinfeed::bindings {

// Looks for np.memmap objects under ndarrays and makes sure, once for each, that their files still
// hold what was mapped: reading past the end of a file that was cut short ends the process.
class MappedFiles {
 public:
  // Throws OSError if the file under `array` was cut short; an array in memory costs nothing.
  void check(pybind11::handle array);

 private:
  std::vector<PyObject*> checked_;  // borrowed: the arrays that are looked at keep them alive
};

}  // namespace pinfeed::bindings
