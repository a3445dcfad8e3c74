#include "kernels/sample.h"

#include "kernels/copy.h"

namespace pinfeed::kernels {

void write_block(const Sample& sample, const PermuteRuns& runs, const std::byte* from,
                 std::size_t items, std::size_t item_size, std::byte* out, bool streaming) {
  if (items == 0) return;
  bool fits = true;
  if (sample.plan != nullptr) {
    fits = sample.plan->run(runs, from, out, streaming);
  } else if (sample.cast) {
    fits = sample.cast(from, items, out);
  } else {
    copy_bytes(out, from, items * item_size, streaming);
  }
  if (!fits && sample.misfit != nullptr) __atomic_store_n(sample.misfit, true, __ATOMIC_RELAXED);
}

}  // namespace pinfeed::kernels
