// Native work off the interpreter: releases the GIL and spreads rows over the thread pool.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>

#include "runtime/thread_pool.h"

namespace pinfeed::bindings {

// Calls body(begin, end) over [0, rows), each row `row_bytes` of output. Releasing the GIL is safe
// because the body sees raw pointers only, whose owners the calling function holds. A body that
// allocates needs runtime::parallel_for_allocating.
template <class Body>
void run_rows(std::size_t rows, std::size_t row_bytes, std::size_t threads, const Body& body,
              void (*spread)(std::size_t, std::size_t, std::size_t,
                             runtime::RangeBody) = &runtime::parallel_for) {
  // A job of one chunk stays on the calling thread: waking another takes as long as writing a
  // megabyte. Small enough that the last chunks even out.
  constexpr std::size_t kChunkBytes = std::size_t{512} << 10;
  const std::size_t chunk =
      std::max<std::size_t>(kChunkBytes / std::max<std::size_t>(row_bytes, 1), 1);
  // Below this, letting go of the GIL and taking it again is longer than the work.
  constexpr std::size_t kInline = std::size_t{16} << 10;
  if (rows * row_bytes <= kInline) {
    body(std::size_t{0}, rows);
    return;
  }
  const pybind11::gil_scoped_release unlocked;
  spread(rows, chunk, threads, body);
}

}  // namespace pinfeed::bindings
