// Every interleaving of the slot protocol, in a small world: one slot, two workers, a trainer, and
// a kill at any step. The changes are those of slot_word.h themselves; what surrounds them,
// messages in a pipe and bytes in the slot, is modelled. Since every step looks at the word and
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
constexpr int kPipe = 2;    // messages at most on their way
constexpr int kClaims = 3;  // in one history, and messages too: more would only repeat
constexpr int kSends = 3;
constexpr int kLives = 2;  // processes that have the same owner number, one after the other

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
  bool has_tensor = false;
  bool wrote = false;
  std::uint32_t counted = 0;  // generation of a message counted as sent but not yet in the pipe
  auto operator<=>(const Worker&) const = default;
};

struct World {
  std::uint64_t word = 0;
  int bytes = 0;  // in the slot; each claim writes others
  int claims = 0;
  int sends = 0;
  Worker workers[kWorkers];
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

  void reach(World world) {
    if (seen.insert(world).second) todo.push_back(std::move(world));
  }

  // Returns how often a promise is broken in the worlds that can be reached.
  int explore() {
    int broken = 0;
    reach({});
    while (!todo.empty()) {
      const World world = todo.front();
      todo.pop_front();
      broken += !holds(world);
      step(world);
    }
    return broken + wrongly_refused;
  }

  static bool holds(const World& world) {
    const SlotWord slot = unpack(world.word);
    // What the trainer sees never changes.
    for (const int bytes : world.tensors) {
      if (bytes != world.bytes) return false;
    }
    if (slot.taken != world.tensors.size()) return false;
    // Nothing is left behind: without processes, messages and tensors the slot is free.
    bool all_swept = true;
    for (const Worker& worker : world.workers) all_swept &= worker.state == Life::swept;
    return !all_swept || !world.tensors.empty() || slot.free();
  }

  void step(const World& world) {
    for (int number = 0; number < kWorkers; ++number) step_worker(world, number);
    step_trainer(world);
  }

  void step_worker(const World& world, int number) {
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
      if (worker.life + 1 == kLives) return;
      next([](World&, Worker& born) { born = {.life = born.life + 1}; });
      return;
    }

    SlotWord claimable = slot;
    if (claims_when_sent) claimable.sent = 0;
    if (const auto claimed = claim(claimable, owner); claimed && world.claims < kClaims) {
      next([&](World& other, Worker& self) {
        other.word = pack(*claimed);
        ++other.claims;
        self.has_tensor = true;
        self.wrote = false;
      });
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
        other.word = pack(*drop_held(slot, true));
        self.has_tensor = self.wrote = false;
      });
    }
    if (worker.counted != 0 && world.pipe.size() < kPipe) {
      next([&](World& other, Worker& self) {
        const auto generation = self.counted;
        other.pipe.push_back({generation, static_cast<int>(generation), number, self.life});
        self.counted = 0;
      });
    }
    next([](World&, Worker& killed) { killed = {.state = Life::dead, .life = killed.life}; });
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
                      .owner = 255,
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
  for (std::uint32_t i = 0; i < kMostReferences; ++i) slot = unpack(pack(*send(slot)));
  CHECK(!send(slot));
  for (std::uint32_t i = 0; i < kMostReferences; ++i) slot = unpack(pack(*receive(slot, 1)));
  CHECK(!send(slot) && !receive(slot, 1) && slot.taken == kMostReferences);
  CHECK(send(*drop_taken(slot)));
}

void test_every_interleaving() {
  Explorer explorer;
  CHECK(explorer.explore() == 0);
  CHECK(explorer.refused > 0);  // late messages of dead workers do occur
  std::printf("       %zu worlds\n", explorer.seen.size());
}

void test_the_explorer_finds_mistakes() {
  for (bool Explorer::* mistake : {&Explorer::sends_uncounted, &Explorer::sweep_leaves_sent,
                                   &Explorer::claims_when_sent, &Explorer::ignores_generation}) {
    Explorer explorer;
    explorer.*mistake = true;
    CHECK(explorer.explore() > 0);
  }
}

}  // namespace
}  // namespace pinfeed::tests

void slot_model_tests() {
  using namespace pinfeed::tests;
  run("slot: a word holds all of it", test_packing);
  run("slot: limits of messages and tensors", test_limits);
  run("slot: every interleaving of two workers, a trainer and kills", test_every_interleaving);
  run("slot: mistakes in the protocol would be found", test_the_explorer_finds_mistakes);
}
