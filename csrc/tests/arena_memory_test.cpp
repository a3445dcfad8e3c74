// The arena's memory: what is kept, what goes back to the system, and what there is none for.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <ctime>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/arena.h"
#include "runtime/process_identity.h"
#include "tests/arena_case.h"
#include "tests/check.h"
#include "tests/concurrency.h"

namespace pinfeed::tests {
namespace {

void test_kept_slots_are_not_evicted() {
  Arena& arena = new_arena(1024 * kKiB);
  CHECK(arena.end_of_slots() == arena.first_slot());
  std::vector<SlotHold> holds;
  for (int i = 0; i < 4; ++i) holds.push_back(*arena.claim(256 * kKiB));
  CHECK(arena.end_of_slots() == arena.first_slot() + 1024 * kKiB);
  CHECK(arena.end_of(1) == arena.first_slot() + 512 * kKiB);
  CHECK(arena.keep(arena.end_of(1)) && arena.kept_until() == arena.end_of(1));
  std::memset(holds[0].data, 1, 256 * kKiB);
  for (const SlotHold& hold : holds) arena.drop_held(hold);
  arena.set_max_bytes(256 * kKiB);
  CHECK(arena.stats().resident_bytes == 512 * kKiB && holds[0].data[0] == std::byte{1});
  // What can't make room for others serves them itself.
  const auto small = arena.claim(10);
  CHECK(small && small->slot == 0 && arena.claim(10)->slot == 1 && !arena.claim(10));
  arena.drop_held(*small);
  CHECK(arena.keep(arena.first_slot()));
  arena.set_max_bytes(1);
  CHECK(holds[0].data[0] == std::byte{0});
}

void test_kept_slots_wait_when_they_are_let_go() {
  using namespace std::chrono_literals;
  Arena& arena = new_arena();
  const SlotHold first = hand_over(arena, *arena.claim(10), 10);
  CHECK(arena.keep(arena.end_of_slots()));
  const SlotHold second = hand_over(arena, *arena.claim(10), 10);
  arena.release_taken(second);  // lies behind what is kept
  CHECK(arena.stats().live_slots == 1 && arena.released().take(0s).empty());
  arena.release_taken(first);
  CHECK(arena.stats().live_slots == 1);
  CHECK(arena.released().take(1h) == std::vector{first.slot} && arena.released().take(0s).empty());
  arena.drop_taken(first);
  CHECK(arena.stats().live_slots == 0);
  std::thread waiting([&] { CHECK(arena.released().take(1h).empty()); });
  arena.released().wake();
  waiting.join();
}

// A process gives memory back as fast as it can, and may be killed in the middle.
void test_nothing_is_given_back_once_it_is_kept() {
  Arena& arena = new_arena();
  for (int i = 0; i < 30; ++i) {
    CHECK(arena.keep(arena.first_slot()));
    arena.set_max_bytes(kReserved);  // whoever was killed may have left less
    for (const std::size_t bytes : {10, 20'000, 300'000, 1'000'000}) {
      const auto hold = arena.claim(bytes);
      arena.drop_held(*hold);
    }
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) {
        arena.set_max_bytes(1);
        arena.set_max_bytes(kReserved);
        for (const std::size_t bytes : {10, 20'000, 300'000, 1'000'000}) {
          if (const auto hold = arena.claim(bytes)) arena.drop_held(*hold);
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (i % 2 == 0) kill(pid, SIGKILL);
    const std::size_t end = arena.end_of_slots();
    int rounds = 0;
    while (!arena.keep(end)) CHECK(++rounds < 1'000'000);
    for (std::size_t page = arena.first_slot(); page < end; page += 4096) {
      arena.base()[page] = std::byte{1};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    for (std::size_t page = arena.first_slot(); page < end; page += 4096) {
      CHECK(arena.base()[page] == std::byte{1});
    }
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    arena.sweep_the_gone();
    CHECK(arena.keep(end) && arena.stats().live_slots == 0);
  }
}

// Bytes of a file that have memory, as the system counts them.
std::size_t bytes_in_memory(const Arena& arena) {
  struct stat status;
  CHECK(fstat(arena.descriptor(), &status) == 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

void test_idle_slots_give_their_memory_back() {
  using namespace std::chrono_literals;
  Arena& arena = new_arena();
  const std::size_t table = bytes_in_memory(arena);
  arena.set_idle_timeout(100ms);
  const auto large = arena.claim(8000 * kKiB);
  const auto small = arena.claim(100 * kKiB);
  CHECK(bytes_in_memory(arena) >= table + 8000 * kKiB);
  std::memset(small->data, 7, 100 * kKiB);
  const SlotHold taken = hand_over(arena, *small, 100 * kKiB);  // the thread begins with it
  arena.drop_taken(hand_over(arena, *large, 8000 * kKiB));
  // What is viewed stays; what is free goes, for no other process could claim it.
  CHECK(eventually([&] { return arena.stats().resident_bytes == 112 * kKiB; }));
  CHECK(bytes_in_memory(arena) <= table + 112 * kKiB);
  CHECK(taken.data[0] == std::byte{7} && taken.data[100 * kKiB - 1] == std::byte{7});
  arena.drop_taken(taken);
  CHECK(eventually([&] { return arena.stats().resident_bytes == 0; }));
  // It comes back when it is needed, and goes again, with another thread.
  std::this_thread::sleep_for(200ms);
  const auto again = arena.claim(8000 * kKiB);
  CHECK(again && again->slot == large->slot && arena.stats().grows == 3);
  std::memset(again->data, 1, 8000 * kKiB);
  arena.drop_taken(hand_over(arena, *again, 8000 * kKiB));
  CHECK(eventually([&] { return bytes_in_memory(arena) <= table; }));
}

// Another process that could claim slots, and never does.
pid_t start_member(Arena& arena) {
  const pid_t pid = fork();
  if (pid == 0) {
    arena.join();
    while (true) pause();
  }
  CHECK(eventually([&] { return arena.stats().others == 1; }));
  return pid;
}

// A slot that a living process may need stays for longer, until others have served 64 times.
void test_what_goes_round_is_not_given_back() {
  using namespace std::chrono_literals;
  Arena& arena = new_arena();
  const pid_t pid = start_member(arena);
  arena.set_idle_timeout(400ms);
  const auto large = arena.claim(1000 * kKiB);
  const auto other = arena.claim(10);
  arena.drop_taken(hand_over(arena, *other, 10));
  arena.drop_held(*large);
  std::this_thread::sleep_for(1200ms);
  CHECK(arena.stats().resident_bytes == 1028 * kKiB);  // idle, but for less than six timeouts
  for (int i = 0; i < 200; ++i) {
    const auto hold = arena.claim(10);
    CHECK(hold && hold->slot == other->slot);
    arena.drop_held(*hold);
  }
  const auto began = std::chrono::steady_clock::now();
  CHECK(eventually([&] { return arena.stats().resident_bytes <= 4 * kKiB; }));
  CHECK(std::chrono::steady_clock::now() - began < 1000ms);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  CHECK(eventually([&] { return arena.stats().resident_bytes == 0; }));
}

// The thread claims what it gives back, and that says nothing of what goes round.
void test_what_is_given_back_does_not_go_round() {
  using namespace std::chrono_literals;
  Arena& arena = new_arena();
  const pid_t pid = start_member(arena);
  arena.set_idle_timeout(400ms);
  const auto large = arena.claim(1000 * kKiB);
  std::vector<SlotHold> small;
  for (int i = 0; i < 100; ++i) small.push_back(*arena.claim(10));
  arena.drop_taken(hand_over(arena, small[0], 10));
  for (int i = 1; i < 100; ++i) arena.drop_held(small[i]);
  std::this_thread::sleep_for(1600ms);
  arena.drop_held(*large);
  // Nobody claims any more: the small ones go after six timeouts, and the large one after its own.
  CHECK(eventually([&] { return arena.stats().resident_bytes == 1024 * kKiB; }));
  std::this_thread::sleep_for(400ms);
  CHECK(arena.stats().resident_bytes == 1024 * kKiB);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// Without an owner number the thread can give nothing back, and must wait until it has one.
void test_the_thread_waits_for_an_owner_number() {
  using namespace std::chrono_literals;
  const bool passed = passes_in_fork([] {
    Arena& arena = Arena::create(kReserved, kReserved);
    std::array<int, 2> pipes;
    CHECK(pipe(pipes.data()) == 0);
    if (fork() == 0) {
      const auto hold = arena.claim(10);
      const SlotMessage message = *arena.send(hold->data, 10);
      CHECK(write(pipes[1], &message, sizeof message) == sizeof message);
      _exit(0);
    }
    SlotMessage message;
    CHECK(read(pipes[0], &message, sizeof message) == sizeof message);
    rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    const rlimit none{0, files.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    arena.set_idle_timeout(50ms);
    arena.drop_taken(*arena.receive(message, 10));
    std::this_thread::sleep_for(1000ms);
    CHECK(std::clock() < CLOCKS_PER_SEC / 10);  // of this process: nobody else is counted
    CHECK(arena.stats().resident_bytes == 4 * kKiB);
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(eventually([&] { return arena.stats().resident_bytes == 0; }));
  });
  CHECK(passed);
}

// Slots are claimed, written, read and let go as fast as their memory goes.
void test_giving_back_while_others_claim() {
  using namespace std::chrono_literals;
  Arena& arena = new_arena();
  arena.set_idle_timeout(1ms);
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::minstd_rand random(seed);
      const auto until = std::chrono::steady_clock::now() + 1s;
      while (std::chrono::steady_clock::now() < until) {
        const std::size_t words = 1 + random() % 60'000;
        const auto hold = arena.claim(words * sizeof(unsigned));
        CHECK(hold.has_value());
        auto* const data = reinterpret_cast<unsigned*>(hold->data);
        std::fill(data, data + words, seed);
        const SlotHold taken = hand_over(arena, *hold, words * sizeof(unsigned));
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 6));
        CHECK(std::all_of(data, data + words, [&](unsigned word) { return word == seed; }));
        arena.drop_taken(taken);
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 6));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(eventually([&] { return arena.stats().resident_bytes == 0; }));
  CHECK(arena.stats().grows > arena.stats().slots);  // memory did go and come back
}

void test_kept_memory_stays() {
  using namespace std::chrono_literals;
  Arena& arena = new_arena(1024 * kKiB);
  arena.set_idle_timeout(40ms);
  std::vector<SlotHold> holds;
  for (int i = 0; i < 4; ++i) holds.push_back(*arena.claim(256 * kKiB));
  const std::size_t end = arena.reserved() / 2;
  CHECK(arena.keep(end) && arena.kept_until() == end);
  std::memset(holds[0].data, 1, 256 * kKiB);
  arena.drop_taken(hand_over(arena, holds[0], 256 * kKiB));
  for (int i = 1; i < 4; ++i) arena.drop_held(holds[i]);
  arena.set_max_bytes(256 * kKiB);
  std::this_thread::sleep_for(200ms);
  CHECK(arena.stats().resident_bytes == 1024 * kKiB && holds[0].data[0] == std::byte{1});
  // What can't make room for others serves them itself.
  CHECK(arena.claim(10).has_value());
  CHECK(arena.keep(0));
  CHECK(eventually([&] { return arena.stats().resident_bytes <= 256 * kKiB; }));
}

// Whether this process has a file mapped, by its name.
bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

void test_slots_of_threads_that_claim_at_once_fit_the_limit() {
  constexpr std::size_t kSlots = 400;
  for (int round = 0; round < 40; ++round) {
    Arena& arena = new_arena(kSlots * 4 * kKiB);
    while (arena.stats().slots < kSlots - 1) arena.claim(4 * kKiB);
    std::atomic<int> missing = 2;
    const auto claim_the_last = [&] {
      --missing;
      while (missing > 0) {
      }
      arena.claim(4 * kKiB);
    };
    std::thread other(claim_the_last);
    claim_the_last();
    other.join();
    CHECK(arena.end_of_slots() == arena.first_slot() + kSlots * 4 * kKiB);
  }
}

void test_files_that_are_no_arenas() {
  const std::string name = "pinfeed-no-arena";
  const int file = create_shared_file(name);
  for (const std::size_t bytes : {std::size_t{0}, kReserved}) {
    CHECK(ftruncate(file, static_cast<off_t>(bytes)) == 0);
    bool refused = false;
    try {
      Arena::attach(file);
    } catch (const std::runtime_error&) {
      refused = true;
    }
    CHECK(refused && !is_mapped(name));
  }
  void* const data = mmap(nullptr, kReserved, PROT_READ, MAP_SHARED, file, 0);
  CHECK(is_mapped(name));  // or the checks above would say nothing
  munmap(data, kReserved);
  close(file);
}

}  // namespace
}  // namespace pinfeed::tests

void arena_memory_tests() {
#if defined(__linux__)
  using namespace pinfeed::tests;
  run("arena: kept slots are not evicted", test_kept_slots_are_not_evicted);
  run("arena: kept slots wait when they are let go", test_kept_slots_wait_when_they_are_let_go);
  run("arena: nothing is given back once it is kept", test_nothing_is_given_back_once_it_is_kept);
  run("arena: idle slots give their memory back", test_idle_slots_give_their_memory_back);
  run("arena: what goes round is not given back", test_what_goes_round_is_not_given_back);
  run("arena: what is given back does not go round", test_what_is_given_back_does_not_go_round);
  run_if(kCanFork, kWhyNoFork, "arena: the thread waits for an owner number",
         test_the_thread_waits_for_an_owner_number);
  run("arena: memory goes back while others claim", test_giving_back_while_others_claim);
  run("arena: kept memory stays", test_kept_memory_stays);
  run("arena: slots of threads that claim at once fit the limit",
      test_slots_of_threads_that_claim_at_once_fit_the_limit);
  run("arena: files that are no arenas", test_files_that_are_no_arenas);
#endif
}
