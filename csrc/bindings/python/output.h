// Where results go: a new buffer of the pool, one that the caller's allocator makes, or `out`.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>

#include "bindings/python/array_view.h"
#include "dispatch/cpu_features.h"

namespace pinfeed::bindings {

// What a function was asked to write into. `target` is None for a buffer of the pool, a callable
// allocate(shape, dtype name) -> tensor (in a worker, say), or the array given as `out`.
struct OutputRequest {
  pybind11::object target;
  bool as_tensor;  // for a buffer of the pool: torch tensor or ndarray
};

struct Output {
  pybind11::object array;
  std::byte* data;
};

// C-contiguous memory for `shape`. An `out` that the user gave is checked first (kind, dtype,
// shape, writable, contiguous) and never partly written when it does not fit. `alternative`, if not
// null, is a second order of the same axes, as byte strides, that the caller can write too; then
// `used_alternative` says which one `out` has. Throws TypeError and ValueError.
Output make_output(const OutputRequest& request, const Shape& shape, DType dtype,
                   const std::string& function, const Shape* alternative = nullptr,
                   bool* used_alternative = nullptr);

// Throws ValueError if the output's memory overlaps the source's.
void check_no_overlap(const Output& output, std::size_t bytes, const Extent& source,
                      const std::string& function);
inline void check_no_overlap(const Output& output, std::size_t bytes, const ArrayView& source,
                             const std::string& function) {
  check_no_overlap(output, bytes, extent(source), function);
}

// Bytes of an array of this shape. Throws ValueError if they overflow 63 bits.
std::size_t checked_bytes(const Shape& shape, DType dtype, const std::string& function);

// The next multiple. Throws ValueError if it overflows 63 bits.
std::int64_t rounded_up(std::int64_t size, std::int64_t multiple, const std::string& name);

using dispatch::worth_streaming;

}  // namespace pinfeed::bindings
