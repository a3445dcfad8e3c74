#include "runtime/buffer_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/concurrency.h"
#if PINFEED_UNDER_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace {

using namespace std::chrono_literals;
using namespace pinfeed::tests;
using pinfeed::runtime::BufferPool;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

BufferPool& buffers() { return BufferPool::instance(); }

std::size_t capacity_handed_out(std::size_t bytes) {
  buffers().trim();
  const std::size_t before = buffers().stats().live_bytes;
  void* const data = buffers().acquire(bytes);
  const std::size_t capacity = buffers().stats().live_bytes - before;
  buffers().release(data);
  return capacity;
}

void test_reuse() {
  buffers().trim();
  const BufferPool::Stats before = buffers().stats();
  void* const first = buffers().acquire(3 * kMiB);
  void* const second = buffers().acquire(3 * kMiB);
  CHECK(first != second);
  buffers().release(first);
  buffers().release(second);
  CHECK(buffers().stats().idle_buffers == 2);
  CHECK(buffers().stats().live_buffers == before.live_buffers);
  CHECK(buffers().acquire(3 * kMiB) == second);  // the one released last
  CHECK(buffers().acquire(2 * kMiB) == first);   // from a larger class, but not twice too large
  const BufferPool::Stats after = buffers().stats();
  CHECK(after.mapped_total == before.mapped_total + 2);
  CHECK(after.reused_total == before.reused_total + 2);
  CHECK(after.idle_buffers == 0 && after.idle_bytes == 0);
  buffers().release(first);
  buffers().release(second);

  void* const small = buffers().acquire(kMiB);  // a third of the idle memory
  CHECK(small != first && small != second);
  buffers().release(small);
  buffers().release(nullptr);
}

void test_size_classes() {
  CHECK(capacity_handed_out(64 * kKiB) == 64 * kKiB);
  CHECK(capacity_handed_out(64 * kKiB + 1) == 80 * kKiB);
  CHECK(capacity_handed_out(112 * kKiB + 1) == 128 * kKiB);
  CHECK(capacity_handed_out(128 * kKiB + 1) == 160 * kKiB);
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    const std::size_t power = std::size_t{1} << (16 + round % 12);
    const std::size_t bytes = power + random() % power;
    const std::size_t capacity = capacity_handed_out(bytes);
    CHECK(capacity >= bytes);
    CHECK(capacity <= bytes + bytes / 4);
    CHECK(capacity_handed_out(capacity) == capacity);
  }
}

void test_alignment() {
  const auto is_aligned = [](std::size_t bytes, std::size_t alignment) {
    void* const data = buffers().acquire(bytes);
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
    std::memset(data, 1, bytes);  // all of it is there
    buffers().release(data);
    return aligned;
  };
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const std::size_t bytes : {1, 63, 1000, 65535}) CHECK(is_aligned(bytes, 64));
  for (const std::size_t kib : {64, 65, 100, 1791}) CHECK(is_aligned(kib * kKiB, page));
  for (const std::size_t mib : {2, 3, 5, 33}) CHECK(is_aligned(mib * kMiB, 2 * kMiB));
}

void test_odd_sizes() {
  void* const first = buffers().acquire(0);
  void* const second = buffers().acquire(0);
  CHECK(first != nullptr && second != nullptr && first != second);
  buffers().release(first);
  buffers().release(second);
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2}) {
    bool refused = false;
    try {
      buffers().acquire(bytes);
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    CHECK(refused);
  }
}

// Acquires small buffers until the pool has forgotten the peak of earlier ones.
void forget_large_requests() {
  for (int round = 0; round < 500; ++round) buffers().release(buffers().acquire(64 * kKiB));
}

void test_idle_bound() {
  forget_large_requests();
  buffers().trim();
  // Memory that was live at once may be idle at once: a batch of three views finds all of it again.
  std::vector<void*> held;
  for (int i = 0; i < 3; ++i) held.push_back(buffers().acquire(40 * kMiB));
  for (void* const data : held) buffers().release(data);
  CHECK(buffers().stats().idle_bytes == 120 * kMiB);
  void* const newest = buffers().acquire(40 * kMiB);
  CHECK(newest == held.back());
  buffers().release(newest);
  // The limit decays at every acquire, and excess memory does not wait for the next release.
  held.clear();
  for (int i = 0; i < 150; ++i) held.push_back(buffers().acquire(64 * kKiB));
  CHECK(buffers().stats().idle_bytes <= 40 * kMiB);
  for (void* const data : held) buffers().release(data);
  forget_large_requests();
  CHECK(buffers().stats().idle_bytes <= 32 * kMiB);
  buffers().trim();
  CHECK(buffers().stats().idle_bytes == 0 && buffers().stats().idle_buffers == 0);
}

void test_sizes_in_turns() {
  forget_large_requests();
  buffers().trim();
  // Sizes so far apart that no buffer fits both.
  for (const std::size_t size : {4 * kMiB, 40 * kMiB}) buffers().release(buffers().acquire(size));
  const std::size_t mapped = buffers().stats().mapped_total;
  for (int round = 0; round < 200; ++round) {
    for (const std::size_t size : {4 * kMiB, 40 * kMiB}) buffers().release(buffers().acquire(size));
  }
  CHECK(buffers().stats().mapped_total == mapped);
  // No earlier buffer fits the next size.
  for (const std::size_t size : {48, 56, 64, 80, 96, 112, 128}) {
    buffers().release(buffers().acquire(size * kMiB));
    CHECK(buffers().stats().idle_bytes <= 2 * size * kMiB);
  }
  CHECK(buffers().stats().idle_bytes == (128 + 112) * kMiB);
  buffers().trim();
}

void check_reaper() {
  buffers().set_idle_timeout(30ms);
  for (int round = 0; round < 3; ++round) {
    buffers().release(buffers().acquire(5 * kMiB));
    buffers().release(buffers().acquire(kMiB));
    CHECK(eventually([] { return buffers().stats().idle_buffers == 0; }));
    CHECK(buffers().stats().idle_bytes == 0);
  }
#if defined(__linux__)
  CHECK(eventually([] { return threads_named("pinfeed-reaper") == 0; }));
#endif
  buffers().set_idle_timeout(10s);
}

void test_reaper() {
  check_reaper();
  buffers().release(buffers().acquire(kMiB));
  std::this_thread::sleep_for(100ms);
  CHECK(buffers().stats().idle_buffers == 1);  // it is freed only after 10 s
#if defined(__linux__)
  CHECK(eventually([] { return threads_named("pinfeed-reaper") == 1; }));
  buffers().trim();
  CHECK(eventually([] { return threads_named("pinfeed-reaper") == 0; }));
#endif
}

void test_poison() {
  const bool before = buffers().poison();
  buffers().set_poison(true);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, 64 * kKiB, 3 * kMiB + 5}) {
    for (int round = 0; round < 2; ++round) {  // a new one, then the same again
      auto* const data = static_cast<unsigned char*>(buffers().acquire(bytes));
      CHECK(std::all_of(data, data + bytes, [](unsigned char byte) { return byte == 0xCB; }));
      std::memset(data, 0, bytes);
      buffers().release(data);
    }
  }
  buffers().set_poison(before);
}

void test_asan_sees_idle_memory() {
#if PINFEED_UNDER_ASAN
  auto* const data = static_cast<char*>(buffers().acquire(100 * kKiB));
  CHECK(__asan_region_is_poisoned(data, 100 * kKiB) == nullptr);
  CHECK(__asan_address_is_poisoned(data + 100 * kKiB) == 1);  // the class has 112 KiB
  buffers().release(data);
  CHECK(__asan_address_is_poisoned(data) == 1);
  CHECK(buffers().acquire(100 * kKiB) == data);
  CHECK(__asan_region_is_poisoned(data, 100 * kKiB) == nullptr);
  buffers().release(data);
#endif
}

// Each thread writes both ends of its buffers; no other thread may write there meanwhile.
void hammer(std::uint8_t mark, int rounds, std::atomic<int>& overwritten) {
  struct Held {
    std::uint8_t* data;
    std::size_t bytes;
  };
  std::mt19937_64 random(mark);
  std::vector<Held> held;
  const auto release_at = [&](std::size_t position) {
    const auto [data, bytes] = held[position];
    if (data[0] != mark || data[bytes - 1] != mark) ++overwritten;
    buffers().release(data);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(position));
  };
  for (int round = 0; round < rounds; ++round) {
    const std::size_t bytes = 1 + random() % (std::size_t{1} << (10 + random() % 13));
    auto* const data = static_cast<std::uint8_t*>(buffers().acquire(bytes));
    data[0] = data[bytes - 1] = mark;
    held.push_back({data, bytes});
    if (held.size() > 8) release_at(random() % held.size());
    if (round % 200 == 0) buffers().trim();
  }
  while (!held.empty()) release_at(0);
}

void test_concurrent_buffers() {
  const std::size_t live_before = buffers().stats().live_buffers;
  buffers().set_idle_timeout(1ms);  // the reaper takes part
  std::atomic<int> overwritten{0};
  std::vector<std::thread> threads;
  for (std::uint8_t mark = 1; mark <= 4; ++mark) {
    threads.emplace_back([mark, &overwritten] { hammer(mark, 2000, overwritten); });
  }
  for (std::thread& thread : threads) thread.join();
  buffers().set_idle_timeout(10s);
  CHECK(overwritten == 0);
  CHECK(buffers().stats().live_buffers == live_before);
  CHECK(buffers().stats().idle_bytes <= 32 * kMiB);
}

void test_release_elsewhere() {
  void* const data = buffers().acquire(kMiB);
  std::thread([data] { buffers().release(data); }).join();
  CHECK(buffers().acquire(kMiB) == data);
  buffers().release(data);
}

void test_fork_with_live_buffers() {
  buffers().trim();
  auto* const kept = static_cast<std::uint8_t*>(buffers().acquire(kMiB));
  std::memset(kept, 7, kMiB);
  buffers().release(buffers().acquire(2 * kMiB));  // idle, and a reaper waits for it
#if defined(__linux__)
  // A starting thread holds locks of AddressSanitizer, which a child would inherit.
  CHECK(eventually([] { return threads_named("pinfeed-reaper") == 1; }));
#endif
  CHECK(passes_in_fork([&] {
    CHECK(buffers().stats().live_buffers == 1);
    CHECK(buffers().stats().idle_buffers == 0);
    CHECK(kept[0] == 7 && kept[kMiB - 1] == 7);
    std::memset(kept, 8, kMiB);
    buffers().release(kept);
    CHECK(buffers().acquire(kMiB) == kept);
    buffers().release(kept);
    check_reaper();
  }));
  CHECK(std::all_of(kept, kept + kMiB, [](std::uint8_t byte) { return byte == 7; }));
  CHECK(buffers().stats().idle_buffers == 1);
  buffers().release(kept);
  check_reaper();
}

void test_fork_during_acquire() {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) buffers().release(buffers().acquire(128 * kKiB));
    });
  }
  bool passed = true;  // one failure is enough: each may last until the alarm
  for (int round = 0; passed && round < 20; ++round) {
    passed = passes_in_fork([] {
      for (int i = 0; i < 100; ++i) buffers().release(buffers().acquire(128 * kKiB));
      CHECK(buffers().stats().idle_buffers >= 1);
    });
  }
  CHECK(passed);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void buffer_pool_tests() {
  run("released buffers are reused", test_reuse);
  run("size classes", test_size_classes);
  run("alignment", test_alignment);
  run("empty and impossible requests", test_odd_sizes);
  run("idle bytes are bounded", test_idle_bound);
  run("alternating sizes stay", test_sizes_in_turns);
  run("idle buffers are given back in time", test_reaper);
  run("poison", test_poison);
  run_if(PINFEED_UNDER_ASAN, "this build has no AddressSanitizer",
         "AddressSanitizer sees idle memory", test_asan_sees_idle_memory);
  run("acquire and release from four threads", test_concurrent_buffers);
  run("release from another thread", test_release_elsewhere);
  run_if(kCanFork, kWhyNoFork, "fork with live buffers", test_fork_with_live_buffers);
  run_if(kCanFork, kWhyNoFork, "fork while other threads acquire", test_fork_during_acquire);
}
