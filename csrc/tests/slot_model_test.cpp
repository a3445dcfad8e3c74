// Every interleaving of the slot protocol, in a small world: one slot, two workers, a trainer, a
// process that gives idle memory back, and a kill at any step. The changes are those of slot_word.h
// themselves; what surrounds them, messages in a pipe, bytes in the slot and the memory below them,
// is modelled. Since every step looks at the word and
// changes it in one compare-and-swap, steps that happen one after the other in any order are all
// that can happen.
#include <compare>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "runtime/slot_word.h"
#include "tests/check.h"

namespace pinfeed::tests {
namespace {

using namespace pinfeed::runtime;

constexpr int kWorkers = 2;
constexpr int kReaper = 2;  // gives memory back; any process may, so it may be killed too
constexpr int kProcesses = 3;
constexpr int kPipe = 2;    // messages at most on their way
constexpr int kClaims = 3;  // in one history, and messages too: more would only repeat
constexpr int kSends = 3;
constexpr int kReturns = 1;  // of memory, in one history
constexpr int kLives = 2;    // processes that have the same owner number, one after the other

enum class Life : std::uint8_t { running, dead, swept };

struct Message {
  std::uint32_t generation;
  int bytes;  // what its sender wrote
  int sender;
  int life;
  auto operator<=>(const Message&) const = default;
};

struct Worker {
  Life state = Life::running;
  int life = 0;
  bool has_slot = false;
  bool has_tensor = false;  // the slot is filled
  bool wrote = false;
  bool returning = false;  // it has said that the memory goes
  bool returned = false;
  std::uint32_t saw = 0;      // the reaper: generation that it saw free before, + 1
  std::uint32_t counted = 0;  // generation of a message counted as sent but not yet in the pipe
  auto operator<=>(const Worker&) const = default;
};

struct World {
  std::uint64_t word = 0;
  int bytes = 0;        // in the slot; each claim writes others
  bool memory = false;  // is there, all of it
  int returns = 0;
  int claims = 0;
  int sends = 0;
  Worker workers[kProcesses];
  std::vector<Message> pipe;
  std::vector<int> tensors;  // of the trainer: the bytes that each saw when it was made
  auto operator<=>(const World&) const = default;
};

struct Explorer {
  std::set<World> seen;
  std::deque<World> todo;
  int refused = 0;
  int wrongly_refused = 0;
  // Mistakes that the explorer must find.
  bool sends_uncounted = false;
  bool sweep_leaves_sent = false;
  bool claims_when_sent = false;
  bool ignores_generation = false;
  bool returns_unclaimed = false;
  bool returns_before_saying_so = false;
  bool fills_before_memory = false;

  void reach(World world) {
    if (seen.insert(world).second) todo.push_back(std::move(world));
  }

  // Whether every promise holds in all worlds that can be reached; stops at one where it does not.
  bool all_hold() {
    reach({});
    while (!todo.empty() && wrongly_refused == 0) {
      const World world = todo.front();
      todo.pop_front();
      if (!holds(world)) return false;
      step(world);
    }
    return wrongly_refused == 0;
  }

  static bool holds(const World& world) {
    const SlotWord slot = unpack(world.word);
    // What the trainer sees never changes.
    for (const int bytes : world.tensors) {
      if (bytes != world.bytes) return false;
    }
    if (slot.taken != world.tensors.size()) return false;
    // What is read or written has memory, and whoever finds a slot resident may rely on it.
    if (!world.memory && (slot.resident || !world.tensors.empty())) return false;
    for (const Worker& worker : world.workers) {
      if (worker.state == Life::running && worker.has_tensor && !world.memory) return false;
    }
    // Nothing is left behind: without processes, messages and tensors the slot is free.
    bool all_swept = true;
    for (const Worker& worker : world.workers) all_swept &= worker.state == Life::swept;
    return !all_swept || !world.tensors.empty() || slot.free();
  }

  void step(const World& world) {
    for (int number = 0; number < kProcesses; ++number) step_process(world, number);
    step_trainer(world);
  }

  void step_process(const World& world, int number) {
    const auto owner = static_cast<std::uint32_t>(number);
    const Worker& worker = world.workers[number];
    const SlotWord slot = unpack(world.word);
    // Copies the world, changes the worker in the copy, and goes there.
    const auto next = [&](auto&& change) {
      World other = world;
      change(other, other.workers[number]);
      reach(std::move(other));
    };

    if (worker.state == Life::dead) {  // anyone may sweep, any time later
      next([&](World& other, Worker& swept) {
        if (auto changed = sweep(slot, owner)) {
          if (sweep_leaves_sent) changed->sent = slot.sent;
          other.word = pack(*changed);
        }
        swept.state = Life::swept;
      });
      return;
    }
    if (worker.state == Life::swept) {  // another process may get its owner number
      if (number == kReaper || worker.life + 1 == kLives) return;
      next([](World&, Worker& born) { born = {.life = born.life + 1}; });
      return;
    }

    next([](World&, Worker& killed) { killed = {.state = Life::dead, .life = killed.life}; });
    if (number == kReaper) return step_reaper(world, next);

    SlotWord claimable = slot;
    if (claims_when_sent) claimable.sent = 0;
    if (const auto claimed = claim(claimable, owner); claimed && world.claims < kClaims) {
      next([&](World& other, Worker& self) {
        other.word = pack(*claimed);
        ++other.claims;
        self.has_slot = true;
        self.has_tensor = claimed->resident;
        self.wrote = false;
      });
    }
    if (worker.has_slot && !worker.has_tensor) {
      // Memory comes first, and only then does the word say so.
      if (world.memory || fills_before_memory) {
        next([&](World& other, Worker& self) {
          other.word = pack(*fill(slot));
          self.has_tensor = true;
        });
      } else {
        next([](World& other, Worker&) { other.memory = true; });
      }
    }
    if (worker.has_tensor && !worker.wrote) {
      next([&](World& other, Worker& self) {
        other.bytes = static_cast<int>(slot.generation);
        self.wrote = true;
      });
    }
    if (worker.has_tensor && worker.wrote) {
      // Sending is two steps, and the tensor may be dropped between them.
      const auto counted = send(slot);
      if (worker.counted == 0 && counted && world.sends < kSends) {
        next([&](World& other, Worker& self) {
          ++other.sends;
          if (!sends_uncounted) other.word = pack(*counted);
          self.counted = slot.generation;
        });
      }
      next([&](World& other, Worker& self) {
        other.word = pack(*drop_held(slot));
        self.has_slot = self.has_tensor = self.wrote = false;
      });
    }
    if (worker.counted != 0 && world.pipe.size() < kPipe) {
      next([&](World& other, Worker& self) {
        const auto generation = self.counted;
        other.pipe.push_back({generation, static_cast<int>(generation), number, self.life});
        self.counted = 0;
      });
    }
  }

  // Sees the slot free, and some time later gives its memory back if nobody used it meanwhile.
  template <typename Next>
  void step_reaper(const World& world, Next&& next) {
    const Worker& reaper = world.workers[kReaper];
    const SlotWord slot = unpack(world.word);
    if (!reaper.has_slot && slot.free() && slot.resident && reaper.saw != slot.generation + 1) {
      next([&](World&, Worker& self) { self.saw = slot.generation + 1; });
    }
    const bool may_claim = !reaper.has_slot && reaper.saw != 0 && world.returns < kReturns;
    if (may_claim && slot.resident && slot.generation + 1 == reaper.saw) {
      // A look at the word is not enough: the claim may fail.
      const auto claimed = claim(slot, kReaper);
      if (claimed || returns_unclaimed) {
        next([&](World& other, Worker& self) {
          if (!returns_unclaimed) other.word = pack(*claimed);
          ++other.returns;
          self.has_slot = true;
          self.saw = 0;
        });
      }
    }
    if (reaper.has_slot && !reaper.returning) {
      next([&](World& other, Worker& self) {
        const auto emptied = empty(slot);
        if (emptied && !returns_before_saying_so) other.word = pack(*emptied);
        self.returning = true;
      });
    }
    if (reaper.returning && !reaper.returned) {
      next([&](World& other, Worker& self) {
        other.memory = false;
        other.bytes = 0;
        self.returned = true;
      });
    }
    if (reaper.returned) {
      next([&](World& other, Worker& self) {
        if (const auto dropped = drop_held(slot)) other.word = pack(*dropped);
        self = {.life = self.life};
      });
    }
  }

  void step_trainer(const World& world) {
    const SlotWord slot = unpack(world.word);
    if (!world.pipe.empty()) {
      const Message message = world.pipe.front();
      World next = world;
      next.pipe.erase(next.pipe.begin());
      const auto generation = ignores_generation ? slot.generation : message.generation;
      if (const auto received = receive(slot, generation)) {
        next.word = pack(*received);
        next.tensors.push_back(message.bytes);
      } else {
        // Only what was swept may be refused.
        const Worker& sender = world.workers[message.sender];
        ++refused;
        wrongly_refused += sender.life == message.life && sender.state != Life::swept;
      }
      reach(next);
      // Or the loader is closed, and nobody ever reads what is in the pipe.
      World closed = world;
      closed.pipe.clear();
      reach(closed);
    }
    if (!world.tensors.empty()) {
      World next = world;
      next.tensors.pop_back();
      next.word = pack(*drop_taken(slot));
      reach(next);
    }
  }
};

void test_packing() {
  const SlotWord slot{.generation = 0xfedcba98,
                      .owner = 1023,
                      .sent = 1000,
                      .taken = 999,
                      .held = true,
                      .resident = true};
  CHECK(unpack(pack(slot)) == slot);
  CHECK(unpack(pack({.sent = 1})) == SlotWord{.sent = 1});
  CHECK(unpack(0) == SlotWord{});
  SlotWord last{.generation = 0xffffffff};
  CHECK(claim(last, 3)->generation == 0);
}

void test_limits() {
  SlotWord slot = *claim({}, 1);
  CHECK(!send(slot) && !empty(slot));
  slot = *fill(slot);
  for (std::uint32_t i = 0; i < kMostReferences; ++i) slot = unpack(pack(*send(slot)));
  CHECK(!send(slot));
  for (std::uint32_t i = 0; i < kMostReferences; ++i) slot = unpack(pack(*receive(slot, 1)));
  CHECK(!send(slot) && !receive(slot, 1) && slot.taken == kMostReferences);
  CHECK(send(*drop_taken(slot)));
}

void test_every_interleaving() {
  Explorer explorer;
  CHECK(explorer.all_hold());
  CHECK(explorer.refused > 0);  // late messages of dead workers do occur
  std::printf("       %zu worlds\n", explorer.seen.size());
}

void test_the_explorer_finds_mistakes() {
  for (bool Explorer::* mistake :
       {&Explorer::sends_uncounted, &Explorer::sweep_leaves_sent, &Explorer::claims_when_sent,
        &Explorer::ignores_generation, &Explorer::returns_unclaimed,
        &Explorer::returns_before_saying_so, &Explorer::fills_before_memory}) {
    Explorer explorer;
    explorer.*mistake = true;
    CHECK(!explorer.all_hold());
  }
}

}  // namespace
}  // namespace pinfeed::tests

int main() {
  using namespace pinfeed::tests;
  run("slot: a word holds all of it", test_packing);
  run("slot: limits of messages and tensors", test_limits);
  run("slot: every interleaving of two workers, a trainer, a reaper and kills",
      test_every_interleaving);
  run("slot: mistakes in the protocol would be found", test_the_explorer_finds_mistakes);
  return summary();
}
