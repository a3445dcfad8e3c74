// Runs native work over the thread pool, and releases the GIL if that pays off.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "runtime/thread_pool.h"

namespace pinfeed::bindings {

// A job of one chunk stays on the calling thread and keeps the GIL. Waking a thread takes as long
// as writing this much, and so does releasing the GIL; next to a busy Python thread, the GIL
// returns only after 5 ms. Small enough that threads finish together.
constexpr std::size_t kChunkBytes = std::size_t{512} << 10;

inline bool takes_long(std::size_t written_bytes) { return written_bytes > kChunkBytes; }

// Releases the GIL during its lifetime, if the work takes long.
class Unlocked {
 public:
  explicit Unlocked(bool takes_long) {
    if (takes_long) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

// Calls body(begin, end) over [0, rows), each row `row_bytes` of output. Releasing the GIL is safe
// because the body sees raw pointers only, whose owners the caller holds. It may throw
// std::bad_alloc.
template <class Body>
void run_rows(std::size_t rows, std::size_t row_bytes, std::size_t threads, const Body& body) {
  const std::size_t chunk =
      std::max<std::size_t>(kChunkBytes / std::max<std::size_t>(row_bytes, 1), 1);
  const Unlocked unlocked(takes_long(rows * row_bytes));
  runtime::parallel_for_allocating(rows, chunk, threads, body);
}

}  // namespace pinfeed::bindings
