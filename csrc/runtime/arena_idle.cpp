// See Note [Idle slots].
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "runtime/arena.h"
#include "runtime/arena_table.h"
#include "runtime/background_thread.h"

namespace pinfeed::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kClaimsWithoutIt = 64;
constexpr int kTimeoutsAtMost = 6;
constexpr int kLooksPerTimeout = 4;

}  // namespace

// What the thread saw of each slot when it looked first and found it as it is now.
struct Arena::IdleSlots {
  struct Seen {
    bool idle = false;  // free, with memory
    std::uint32_t generation = 0;
    std::uint32_t claims = 0;  // of all slots, until then
    Clock::time_point since;
  };
  std::vector<Seen> seen;
  std::uint32_t given_back = 0;  // slots, each by a claim of this thread's own
};

// Only in the trainer: no other process outlives the workers that fill the slots.
void Arena::start_reaper() noexcept {
  if (!is_mine() || reaper_exists_.exchange(true)) return;
  // Memory stays bounded by the limit; the next message tries again.
  if (!start_background_thread(&reaper_main, this)) reaper_exists_ = false;
}

void* Arena::reaper_main(void* arena_of_thread) {
  name_this_thread("pinfeed-arena");
  Arena& arena = *static_cast<Arena*>(arena_of_thread);
  IdleSlots idle;
  do {
    while (arena.reap(idle)) {
      std::this_thread::sleep_for(arena.idle_timeout_.load() / kLooksPerTimeout);
    }
    arena.reaper_exists_ = false;
    // Whoever received a batch meanwhile has seen a thread. If that batch is there, so am I.
  } while (arena.resident_bytes() > 0 && !arena.reaper_exists_.exchange(true));
  return nullptr;
}

// Looks once at all slots. False if none has memory, so that there is nothing to wait for.
bool Arena::reap(IdleSlots& idle) {
  sweep_the_gone();
  const std::optional<std::uint32_t> me = owner();
  if (!me) return resident_bytes() > 0;  // no file can be opened just now, say
  const std::uint32_t slots = count();
  idle.seen.resize(slots);
  std::uint32_t claims = 0 - idle.given_back;
  for (std::uint32_t i = 0; i < slots; ++i) claims += word(i).generation;

  const auto timeout = idle_timeout_.load();
  const auto now = Clock::now();
  const bool alone = stats().others == 0;
  bool any = false;
  for (std::uint32_t i = 0; i < slots; ++i) {
    const SlotWord slot = word(i);
    IdleSlots::Seen& seen = idle.seen[i];
    any |= slot.takes_memory();
    if (!slot.free() || !slot.resident) {
      seen.idle = false;
    } else if (!seen.idle || seen.generation != slot.generation) {
      seen = {true, slot.generation, claims, now};
    } else if (now - seen.since >= timeout && (alone || claims - seen.claims >= kClaimsWithoutIt ||
                                               now - seen.since >= kTimeoutsAtMost * timeout)) {
      if (give_back(i, slot.generation, *me)) ++idle.given_back;
    }
  }
  return any;
}

}  // namespace pinfeed::runtime
