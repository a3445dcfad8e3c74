// Arenas for tests, and what every test does with them.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/arena.h"
#include "tests/check.h"

namespace pinfeed::tests {

using namespace pinfeed::runtime;

inline constexpr std::size_t kReserved = std::size_t{256} << 20;
inline constexpr std::size_t kKiB = 1024;

// Arenas are never destroyed; here they can still be found, or they would count as leaks.
inline std::vector<Arena*>& all_arenas = *new std::vector<Arena*>;

inline Arena& kept(Arena& arena) {
  all_arenas.push_back(&arena);
  return arena;
}

inline Arena& new_arena(std::size_t max_bytes = kReserved) {
  return kept(Arena::create(kReserved, max_bytes));
}

// A worker's tensor reaches the trainer: the slot is then taken, and no more held.
inline SlotHold hand_over(Arena& arena, const SlotHold& hold, std::size_t bytes) {
  const auto message = arena.send(hold.data, bytes);
  CHECK(message.has_value());
  arena.drop_held(hold);
  const auto received = arena.receive(*message, bytes);
  CHECK(received && received->data == hold.data);
  return *received;
}

}  // namespace pinfeed::tests
