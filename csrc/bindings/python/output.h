// Where results go: a new buffer of the pool, memory of the caller's allocator, or `out`.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>

#include "bindings/python/array_view.h"
#include "dispatch/cpu_features.h"

namespace pinfeed::bindings {

// The output of a call: the array passed as `out`; or memory from a callable allocate(shape, dtype
// name) -> tensor; or a buffer of the pool, as torch.Tensor or np.ndarray, or, for None, as the
// type of the samples.
struct OutputRequest {
  OutputRequest(pybind11::object target, bool samples_are_tensors);

  bool is_given() const;
  // The memory for further outputs of the same call.
  OutputRequest elsewhere() const;

  pybind11::object target;  // None for a buffer of the pool
  bool as_tensor;           // a buffer becomes a tensor, not an ndarray
};

struct Output {
  pybind11::object array;
  std::byte* data;
  bool is_alternative = false;  // whether it has the layout `alternative`
};

// C-contiguous memory for `shape`. A given `out` is checked first (kind, dtype, shape, writable,
// contiguous) and never partly written if it does not fit. `alternative`, if not null, is a second
// layout, as byte strides, that `out` may have. Throws TypeError and ValueError.
Output make_output(const OutputRequest& request, const Shape& shape, DType dtype,
                   const std::string& function, const Shape* alternative = nullptr);

// Throws MemoryError.
[[noreturn]] void raise_no_memory(const std::string& function, const std::string& purpose);

// Throws ValueError if the output's memory overlaps the source's.
void check_no_overlap(const Output& output, std::size_t bytes, const Extent& source,
                      const std::string& function);
inline void check_no_overlap(const Output& output, std::size_t bytes, const ArrayView& source,
                             const std::string& function) {
  check_no_overlap(output, bytes, extent(source), function);
}

// Bytes of an array of this shape. Throws ValueError if they overflow 63 bits.
inline std::size_t checked_bytes(const Shape& shape, DType dtype, const std::string& function) {
  return arrays::checked_bytes(shape, dtype.item_size(), function);
}

// The next multiple. Throws ValueError if it overflows 63 bits.
std::int64_t rounded_up(std::int64_t size, std::int64_t multiple, const std::string& name);

using dispatch::worth_streaming;
using dispatch::worth_streaming_pixels;

}  // namespace pinfeed::bindings
