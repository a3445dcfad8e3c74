// Runs ranges of work on torch's threads: torch.get_num_threads() of them, none in a worker.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstddef>

namespace pinfeed::torch_ops {

// Calls body(begin, end) over [0, rows), each row `row_bytes` of output. The body must not throw.
template <class Body>
void run_rows(std::size_t rows, std::size_t row_bytes, const Body& body) {
  // As in bindings/python/parallel.h: waking a thread takes as long as writing this much.
  constexpr std::size_t kChunkBytes = std::size_t{512} << 10;
  const std::size_t chunk =
      std::max<std::size_t>(kChunkBytes / std::max<std::size_t>(row_bytes, 1), 1);
  if (rows <= chunk) {
    body(std::size_t{0}, rows);
    return;
  }
  torch::stable::parallel_for(0, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(chunk),
                              [&](std::int64_t begin, std::int64_t end) {
                                body(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(end));
                              });
}

}  // namespace pinfeed::torch_ops
