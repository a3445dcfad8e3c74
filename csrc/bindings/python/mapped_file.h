// The files under memory-mapped arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace pinfeed::bindings {

// Finds np.memmap objects under ndarrays and checks, once each, that their files still have the
// mapped bytes: reading past the end of a truncated file ends the process.
class MappedFiles {
 public:
  // Throws OSError if the file under `array` was truncated; skips arrays in memory.
  void check(pybind11::handle array);

 private:
  std::vector<PyObject*> checked_;  // borrowed: their views keep them alive
};

}  // namespace pinfeed::bindings
