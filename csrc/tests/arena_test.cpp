// The arena: its slots, limit and sweeping, by threads, forked processes and processes that are
// killed.
#include "runtime/arena.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/process_identity.h"
#include "tests/arena_case.h"
#include "tests/check.h"
#include "tests/concurrency.h"

void arena_memory_tests();

namespace pinfeed::tests {
namespace {

void test_a_slot_is_used_again() {
  Arena& arena = new_arena();
  const auto first = arena.claim(100 * kKiB);
  CHECK(first && first->generation == 1);
  std::memset(first->data, 7, 100 * kKiB);
  const SlotHold taken = hand_over(arena, *first, 100 * kKiB);
  const auto second = arena.claim(100 * kKiB);
  CHECK(second && second->data != first->data);  // the first is still viewed
  arena.drop_taken(taken);
  const auto third = arena.claim(90 * kKiB);
  CHECK(third && third->data == first->data && third->generation == 2);
  const Arena::Stats stats = arena.stats();
  CHECK(stats.slots == 2 && stats.live_slots == 2 && stats.grows == 2);
  CHECK(stats.resident_bytes == 2 * 112 * kKiB && stats.high_water == stats.resident_bytes);
}

void test_a_message_is_good_once() {
  Arena& arena = new_arena();
  const auto hold = arena.claim(10);
  const auto message = arena.send(hold->data + 4, 6);
  CHECK(message && message->offset == 4);
  CHECK(arena.has_unread_messages());
  const auto received = arena.receive(*message, 6);
  CHECK(received && received->data == hold->data + 4);
  CHECK(!arena.has_unread_messages());
  CHECK(!arena.receive(*message, 6));
  arena.drop_held(*hold);
  arena.drop_taken(*received);
  CHECK(!arena.receive(*message, 6));
  CHECK(arena.claim(10)->slot == message->slot);
  CHECK(!arena.receive(*message, 6));
  CHECK(!arena.receive({77, 1, 0}, 1) && !arena.receive({0, 2, 4000}, 1000));
}

void test_only_what_lies_in_a_held_slot_is_sent() {
  Arena& arena = new_arena();
  std::vector<SlotHold> holds;
  for (std::size_t bytes = 1; bytes < 300'000; bytes += bytes / 2 + 1) {
    holds.push_back(*arena.claim(bytes));
    CHECK(reinterpret_cast<std::uintptr_t>(holds.back().data) % 4096 == 0);
  }
  for (const SlotHold& hold : holds) CHECK(arena.send(hold.data, 1)->slot == hold.slot);
  CHECK(!arena.send(holds[0].data - 1, 1));
  CHECK(!arena.send(holds[0].data, 4097));
  CHECK(!arena.send(&arena, 1));
  const SlotHold last = holds.back();
  CHECK(!arena.send(last.data + 2 * 300'000, 1));
  arena.receive(*arena.send(last.data, 1), 1);
  arena.drop_held(last);
  CHECK(!arena.send(last.data, 1));
}

void test_the_limit() {
  Arena& arena = new_arena(1024 * kKiB);
  std::vector<SlotHold> holds;
  for (int i = 0; i < 4; ++i) holds.push_back(*arena.claim(256 * kKiB));
  CHECK(!arena.claim(1) && !arena.claim(256 * kKiB));
  CHECK(arena.stats().resident_bytes == 1024 * kKiB);
  // A free slot's memory serves other sizes, and comes back empty.
  std::memset(holds[1].data, 1, 256 * kKiB);
  arena.drop_held(holds[1]);
  const auto small = arena.claim(64 * kKiB);
  CHECK(small && arena.stats().resident_bytes == (768 + 64) * kKiB);
  CHECK(!arena.claim(256 * kKiB));
  arena.drop_held(*small);
  const auto again = arena.claim(256 * kKiB);
  CHECK(again && again->slot == holds[1].slot && again->data[0] == std::byte{0});
  CHECK(arena.stats().high_water == 1024 * kKiB);
  // A lower one takes effect at once, as far as it can.
  arena.drop_held(*again);
  arena.set_max_bytes(600 * kKiB);
  CHECK(arena.stats().resident_bytes == 768 * kKiB);
  arena.set_max_bytes(1);
  CHECK(arena.stats().resident_bytes == 768 * kKiB);
  // A higher one too, and no request is too large to be refused.
  arena.set_max_bytes(2048 * kKiB);
  CHECK(arena.claim(1024 * kKiB).has_value());
  CHECK(!arena.claim(kReserved) && !arena.claim(~std::size_t{0}));
}

void test_the_addresses_end() {
  Arena& arena = kept(Arena::create(1, ~std::size_t{0}));
  const SlotHold large = *arena.claim(1024 * kKiB);
  std::size_t claimed = 0;
  while (arena.claim(64 * kKiB)) ++claimed;
  const std::size_t table = arena.reserved() - 1024 * kKiB - claimed * 64 * kKiB;
  CHECK(table > (std::size_t{1} << 20) && table < (std::size_t{2} << 20));
  CHECK(arena.stats().slots == claimed + 1);
  // Larger slots serve then, also those that gave their memory back.
  arena.drop_held(large);
  arena.set_max_bytes(arena.stats().resident_bytes - 1);
  CHECK(arena.stats().resident_bytes == claimed * 64 * kKiB);
  arena.set_max_bytes(arena.reserved());
  CHECK(arena.claim(64 * kKiB)->slot == large.slot);
}

void test_addresses_may_be_limited() {
  const bool passed = passes_in_fork([] {
    const rlimit limit{std::size_t{4} << 30, std::size_t{4} << 30};
    setrlimit(RLIMIT_AS, &limit);
    Arena& arena = Arena::create(std::size_t{1} << 40, std::size_t{1} << 40);
    CHECK(arena.reserved() < std::size_t{4} << 30);
    CHECK(arena.stats().max_bytes < arena.reserved());
    CHECK(arena.claim(kKiB).has_value());
  });
  CHECK(passed);
}

void test_process_identity() {
  CHECK(this_process() != 0 && this_process() == this_process());
  CHECK(!is_gone(this_process()));
  CHECK(is_gone(this_process() ^ 1));  // the same number, begun at another time
  const pid_t pid = fork();
  if (pid == 0) pause();
  const auto child = std::uint64_t{static_cast<std::uint32_t>(pid)} << 32;
  CHECK(is_gone(child));  // no process began when the system did
  kill(pid, SIGKILL);
  CHECK(eventually([&] { return waitpid(pid, nullptr, WNOHANG) == pid; }));
  CHECK(is_gone(child));
}

void test_forks_have_owners_of_their_own() {
  Arena& arena = new_arena();
  const auto hold = arena.claim(10);
  const std::uint32_t depth = fork_depth();
  CHECK(arena.is_mine());
  CHECK(passes_in_fork([&] {
    CHECK(!arena.is_mine() && fork_depth() == depth + 1);
    CHECK(!arena.send(hold->data, 10));  // it is the parent's
    CHECK(arena.claim(10)->slot != hold->slot);
    CHECK(arena.stats().others == 1);
  }));
  // The child is gone, and what it held is found when memory is needed.
  CHECK(arena.stats().live_slots == 2);
  CHECK(arena.sweep_the_gone() == 1);
  CHECK(arena.stats().live_slots == 1 && arena.stats().others == 0);
  CHECK(arena.sweep_the_gone() == 0);
}

void test_a_killed_sweeper_does_not_block() {
  Arena& arena = new_arena();
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      arena.claim(10);
      while (true) arena.sweep_the_gone();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  arena.sweep_the_gone();
  CHECK(arena.stats().others == 0 && arena.stats().live_slots == 0);
}

// Whoever comes first, all threads of a process have one owner number.
void test_threads_that_begin_at_once() {
  for (int round = 0; round < 200; ++round) {
    Arena& arena = new_arena();
    std::atomic<int> waiting = 4;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        --waiting;
        while (waiting > 0) {
        }
        arena.drop_taken(hand_over(arena, *arena.claim(10), 10));
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(arena.stats().live_slots == 0);
  }
}

// Threads claim, write, hand over and check, all at once, on few slots.
void test_threads() {
  Arena& arena = new_arena(1024 * kKiB);
  std::atomic<std::size_t> handed_over{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::minstd_rand random(seed + 1);
      for (int i = 0; i < 2000; ++i) {
        const std::size_t words = 1 + random() % 20'000;
        const auto hold = arena.claim(words * sizeof(unsigned));
        if (!hold) continue;
        auto* const data = reinterpret_cast<unsigned*>(hold->data);
        const unsigned mark = static_cast<unsigned>(random());
        for (std::size_t j = 0; j < words; j += 997) data[j] = mark;
        const SlotHold taken = hand_over(arena, *hold, words * sizeof(unsigned));
        bool same = true;
        for (std::size_t j = 0; j < words; j += 997) same &= data[j] == mark;
        CHECK(same);
        arena.drop_taken(taken);
        ++handed_over;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Arena::Stats stats = arena.stats();
  CHECK(handed_over > 1000 && stats.live_slots == 0 && stats.high_water <= 1024 * kKiB);
}

struct Note {
  SlotMessage message;
  std::uint64_t mark;
};

// A worker that sends until it is killed; what it wrote is told by the mark that travels along.
[[noreturn]] void keep_sending(Arena& arena, int pipe, std::uint64_t seed) {
  std::minstd_rand random(static_cast<unsigned>(seed));
  for (std::uint64_t i = 0;; ++i) {
    const std::size_t words = 600 + random() % 8000;
    const auto hold = arena.claim(words * 8);
    if (!hold) continue;
    const std::uint64_t mark = seed << 32 | i;
    auto* const data = reinterpret_cast<std::uint64_t*>(hold->data);
    std::fill(data, data + words, mark);
    const auto message = arena.send(data, 600 * 8);
    arena.drop_held(*hold);
    const Note note{*message, mark};
    if (write(pipe, &note, sizeof note) != sizeof note) _exit(1);
  }
}

// Workers are killed at any instruction, again and again, while the trainer reads. No batch that is
// accepted holds other bytes than were sent, and in the end nothing is left.
void test_kills_at_any_instruction() {
  Arena& arena = new_arena(512 * kKiB);
  std::minstd_rand random(1);
  std::size_t good = 0;
  for (unsigned round = 1; round <= 150; ++round) {
    std::array<int, 2> pipes[2];
    std::array<pid_t, 2> pids;
    for (unsigned i = 0; i < 2; ++i) {
      CHECK(pipe(pipes[i].data()) == 0);
      pids[i] = fork();
      if (pids[i] == 0) keep_sending(arena, pipes[i][1], 2 * round + i);
      close(pipes[i][1]);
    }
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 8000);
    bool killed = false;
    // One of them is read to its end, also after the kill; the other's messages are never read, as
    // those of a loader that was closed.
    while (true) {
      pollfd readable{pipes[0][0], POLLIN, 0};
      poll(&readable, 1, 1);
      Note note;
      if ((readable.revents & POLLIN) != 0 && read(pipes[0][0], &note, sizeof note) > 0) {
        if (const auto taken = arena.receive(note.message, 600 * 8)) {
          const auto* const data = reinterpret_cast<const std::uint64_t*>(taken->data);
          CHECK(std::all_of(data, data + 600, [&](auto word) { return word == note.mark; }));
          arena.drop_taken(*taken);
          ++good;
        } else {
          CHECK(killed);
        }
      } else if (killed) {
        break;
      }
      if (!killed && std::chrono::steady_clock::now() > until) {
        for (const pid_t pid : pids) kill(pid, SIGKILL);
        for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
        if (round % 2 == 0) arena.sweep_the_gone();
        killed = true;
      }
    }
    for (const auto& pipe : pipes) close(pipe[0]);
  }
  arena.sweep_the_gone();
  const Arena::Stats stats = arena.stats();
  CHECK(good > 150 && stats.others == 0 && stats.live_slots == 0);
  CHECK(stats.resident_bytes <= 512 * kKiB);
  std::printf("       %zu batches\n", good);
}

}  // namespace
}  // namespace pinfeed::tests

int main() {
  using namespace pinfeed::tests;
#if defined(__linux__)
  run_if(!PINFEED_UNDER_ASAN && !PINFEED_UNDER_TSAN, "sanitizers need all addresses",
         "arena: addresses may be limited", test_addresses_may_be_limited);
  run("arena: a slot is used again when nobody views it", test_a_slot_is_used_again);
  run("arena: a message is good once", test_a_message_is_good_once);
  run("arena: only what lies in a held slot is sent", test_only_what_lies_in_a_held_slot_is_sent);
  run("arena: the limit", test_the_limit);
  run("arena: the addresses end", test_the_addresses_end);
  run("arena: process identity", test_process_identity);
  run("arena: forks have owners of their own", test_forks_have_owners_of_their_own);
  run("arena: threads that begin at once", test_threads_that_begin_at_once);
  run("arena: threads", test_threads);
  run("arena: a killed sweeper does not block", test_a_killed_sweeper_does_not_block);
  arena_memory_tests();
  run("arena: kills at any instruction", test_kills_at_any_instruction);
#endif
  return summary();
}
