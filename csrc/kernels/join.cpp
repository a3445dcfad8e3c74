#include "kernels/join.h"

#include "kernels/copy.h"

namespace pinfeed::kernels {

void join_samples(const Sample* samples, const std::int64_t* starts, std::size_t row_items,
                  std::size_t item_size, const PermuteRuns& runs, std::byte* out, bool streaming,
                  std::size_t begin, std::size_t end) {
  const auto items = [&](std::size_t i) {
    return static_cast<std::size_t>(starts[i + 1] - starts[i]) * row_items;
  };
  for (std::size_t i = begin; i < end; ++i) {
    if (i + kAhead < end) prefetch(samples[i + kAhead], items(i + kAhead) * item_size);
    std::byte* to = out + static_cast<std::size_t>(starts[i]) * row_items * item_size;
    write_block(samples[i], runs, samples[i].data, items(i), item_size, to, streaming);
  }
  if (streaming) stores_done();
}

}  // namespace pinfeed::kernels
