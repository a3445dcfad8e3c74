#include "kernels/join.h"

#include <algorithm>
#include <span>

#include "kernels/copy.h"
#include "kernels/lookahead.h"

namespace pinfeed::kernels {

void join_samples(const Sample* samples, const std::int64_t* starts, std::size_t row_items,
                  std::size_t item_size, const PermuteRuns& runs, std::byte* out, bool streaming,
                  std::size_t begin, std::size_t end) {
  const auto items = [&](std::size_t i) {
    return static_cast<std::size_t>(starts[i + 1] - starts[i]) * row_items;
  };
  const auto memory_of = [&](std::size_t i) {
    return std::span(samples[i].data, samples[i].data == nullptr ? 0 : items(i) * item_size);
  };
  const auto all = static_cast<std::size_t>(starts[end] - starts[begin]) * row_items * item_size;
  Lookahead ahead(begin, end, all / std::max<std::size_t>(end - begin, 1));
  for (std::size_t i = begin; i < end; ++i) {
    ahead.before(i, memory_of);
    std::byte* to = out + static_cast<std::size_t>(starts[i]) * row_items * item_size;
    write_block(samples[i], runs, samples[i].data, items(i), item_size, to, streaming);
  }
  if (streaming) stores_done();
}

}  // namespace pinfeed::kernels
