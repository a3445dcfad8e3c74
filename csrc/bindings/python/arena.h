// The arena as a place for the outputs of a worker.
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/python/array_view.h"
#include "runtime/arena.h"

namespace pinfeed::bindings {

// `wait`: a callable that gets a number of bytes for which there is no room, and returns an
// iterator. It is asked for an item before each new try, and raises when there is no hope.
struct ArenaOutputs {
  runtime::Arena& arena;
  pybind11::object wait;

  // Null for an object of any other type.
  static const ArenaOutputs* in(pybind11::handle object);

  // A tensor of `bytes` bytes in a slot, with any contents. Throws what `wait` raises.
  pybind11::object allocate(const Shape& shape, DType dtype, std::size_t bytes,
                            std::byte** data) const;
};

}  // namespace pinfeed::bindings
