// A launch on the CPU: every thread of every block, one after another.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace pinfeed::tests {

// Threads forwards or backwards, blocks likewise, for nothing may depend on their order; shared
// memory holds what another block might have left there.
template <class Work>
void run_on_cpu(const Work& work, std::mt19937_64& random) {
  const std::int64_t blocks = work.blocks();
  const bool backwards = random() % 2 == 0;
  const auto each_thread = [&](const auto& run) {
    for (int i = 0; i < Work::kThreads; ++i) run(backwards ? Work::kThreads - 1 - i : i);
  };
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t block = backwards ? blocks - 1 - i : i;
    if constexpr (Work::kSharedBytes == 0) {
      each_thread([&](int thread) { work.run(block, thread); });
    } else {
      struct alignas(16) Piece {
        std::uint8_t bytes[16];
      };
      // On the heap and of its exact size, so that AddressSanitizer knows its end.
      std::vector<Piece> pieces((Work::kSharedBytes + 15) / 16);
      auto* const shared = reinterpret_cast<std::uint8_t*>(pieces.data());
      std::memset(shared, static_cast<int>(random() % 256), pieces.size() * sizeof(Piece));
      each_thread([&](int thread) { work.gather(block, thread, shared); });
      each_thread([&](int thread) { work.write(block, thread, shared); });
    }
  }
}

}  // namespace pinfeed::tests
