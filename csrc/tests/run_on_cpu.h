// A launch on the CPU: every thread of every block, one after another.
#pragma once

#include <cstdint>
#include <random>

namespace pinfeed::tests {

// Threads and blocks run forwards or backwards, because nothing may depend on their order.
template <class Work>
void run_on_cpu(const Work& work, std::mt19937_64& random) {
  const std::int64_t blocks = work.blocks();
  const bool backwards = random() % 2 == 0;
  for (std::int64_t i = 0; i < blocks; ++i) {
    for (int k = 0; k < Work::kThreads; ++k) {
      work.run(backwards ? blocks - 1 - i : i, backwards ? Work::kThreads - 1 - k : k);
    }
  }
}

}  // namespace pinfeed::tests
