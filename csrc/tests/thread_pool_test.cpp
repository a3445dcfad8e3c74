#include "runtime/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/concurrency.h"

namespace {

using namespace std::chrono_literals;
using namespace pinfeed::tests;
using pinfeed::runtime::available_cpus;
using pinfeed::runtime::parallel_for;

// Every unit of [0, total) is visited exactly once, in ranges of at most `chunk`.
bool covers(std::size_t total, std::size_t chunk, std::size_t threads) {
  std::vector<std::uint8_t> visits(total);
  std::atomic<bool> chunks_fit{true};
  parallel_for(total, chunk, threads, [&](std::size_t begin, std::size_t end) {
    if (begin >= end || end - begin > chunk || end > total) {
      chunks_fit = false;
      return;
    }
    for (std::size_t i = begin; i < end; ++i) ++visits[i];
  });
  return chunks_fit && std::all_of(visits.begin(), visits.end(), [](auto n) { return n == 1; });
}

// Runs `visit` on `threads` different threads at the same time: each body waits for all others.
template <typename Visit>
bool meet(std::size_t threads, Visit&& visit) {
  std::atomic<std::size_t> arrived{0};
  std::atomic<bool> all_met{true};
  parallel_for(threads, 1, threads, [&](std::size_t, std::size_t) {
    visit();
    ++arrived;
    if (!eventually([&] { return arrived == threads; })) all_met = false;
  });
  return all_met;
}

void test_ranges() {
  for (const std::size_t total : {0, 1, 2, 3, 7, 64, 1000, 4097}) {
    for (const std::size_t chunk : {1, 2, 3, 64, 1000, 5000}) {
      for (const std::size_t threads : {0, 1, 2, 3, 8}) CHECK(covers(total, chunk, threads));
    }
  }
}

void test_huge_total() {
  constexpr std::size_t total = SIZE_MAX;
  constexpr std::size_t chunk = SIZE_MAX / 3 - 1;  // four chunks, the last one short
  std::atomic<std::size_t> sum{0};
  std::atomic<int> calls{0};
  parallel_for(total, chunk, 3, [&](std::size_t begin, std::size_t end) {
    sum += end - begin;
    ++calls;
  });
  CHECK(sum == total);
  CHECK(calls == 4);
}

void test_inline_order() {
  std::vector<std::size_t> begins;  // unguarded: all calls must come from this thread
  parallel_for(10, 3, 1, [&](std::size_t begin, std::size_t) { begins.push_back(begin); });
  CHECK((begins == std::vector<std::size_t>{0, 3, 6, 9}));
}

void test_threads_meet() {
  for (const std::size_t threads : {2, 5, 3}) CHECK(meet(threads, [] {}));
}

// The pool has more threads than this by now, and must still not use them.
void test_thread_limit() {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (int round = 0; round < 50; ++round) {
    seen.clear();
    parallel_for(40, 1, 2, [&](std::size_t, std::size_t) {
      std::this_thread::sleep_for(20us);
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    CHECK(seen.size() <= 2);
  }
}

void test_pool_threads() {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> calls_on_caller{0};
  const bool met = meet(3, [&] {
    if (std::this_thread::get_id() == caller) {
      ++calls_on_caller;
      return;
    }
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    CHECK(sigismember(&blocked, SIGINT) == 1);
    CHECK(sigismember(&blocked, SIGTERM) == 1);
    CHECK(sigismember(&blocked, SIGSEGV) == 0);
#if defined(__linux__)
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    CHECK(std::string(name).starts_with("pinfeed-"));
#endif
  });
  CHECK(met);
  CHECK(calls_on_caller == 1);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  CHECK(sigismember(&blocked, SIGINT) == 0);
}

void test_nested() {
  for (const std::size_t outer_threads : {4, 1}) {  // with 1 the pool itself is free
    std::atomic<std::size_t> sum{0};
    std::atomic<bool> stayed{true};
    parallel_for(16, 1, outer_threads, [&](std::size_t, std::size_t) {
      const std::thread::id outer = std::this_thread::get_id();
      parallel_for(100, 7, 4, [&](std::size_t begin, std::size_t end) {
        if (std::this_thread::get_id() != outer) stayed = false;
        std::this_thread::sleep_for(20us);
        sum += end - begin;
      });
    });
    CHECK(sum == 1600);
    CHECK(stayed);
  }
}

void test_concurrent_callers() {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (std::size_t round = 0; round < 300; ++round) {
        const std::size_t threads = 1 + (round + static_cast<std::size_t>(caller)) % 4;
        if (!covers(round, 1 + round % 13, threads)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

void test_fork_of_idle_pool() {
  CHECK(meet(3, [] {}));
  CHECK(passes_in_fork([] {
    CHECK(meet(3, [] {}));  // only new threads of the child can meet
    CHECK(passes_in_fork([] { CHECK(meet(2, [] {})); }));
  }));
  CHECK(meet(3, [] {}));
}

void test_fork_during_a_job() {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) parallel_for(64, 1, 3, [](std::size_t, std::size_t) {});
  });
  bool passed = true;  // one failure is enough: each may last until the alarm
  for (int round = 0; passed && round < 20; ++round) {
    passed = passes_in_fork([] { CHECK(meet(2, [] {})); });
  }
  CHECK(passed);
  stop = true;
  busy.join();
}

constexpr bool kCanLimitMemory = !PINFEED_UNDER_ASAN && !PINFEED_UNDER_TSAN;

// Without address space no stack can be mapped, so pthread_create fails. Sanitizers fail too.
void test_no_more_threads() {
  CHECK(passes_in_fork([] {
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 1;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    std::atomic<std::size_t> sum{0};
    for (int round = 0; round < 3; ++round) {
      parallel_for(1000, 1, 500, [&](std::size_t begin, std::size_t end) { sum += end - begin; });
    }
    CHECK(sum == 3000);
  }));
}

void test_available_cpus() {
  CHECK(available_cpus() >= 1);
#if defined(__linux__)
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  CHECK(available_cpus() == static_cast<std::size_t>(CPU_COUNT(&all)));
  std::thread([&] {
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    CHECK(available_cpus() == 1);
  }).join();
#endif
}

}  // namespace

void thread_pool_tests() {
  run("parallel_for covers every unit once", test_ranges);
  run("parallel_for does not overflow", test_huge_total);
  run("parallel_for runs inline in order", test_inline_order);
  run("parallel_for runs on several threads at once", test_threads_meet);
  run("parallel_for keeps to the number of threads", test_thread_limit);
  run("pool threads are named and take no signals", test_pool_threads);
  run("a nested parallel_for stays on its thread", test_nested);
  run("parallel_for from four threads", test_concurrent_callers);
  run("available_cpus follows the affinity mask", test_available_cpus);
  run_if(kCanFork, kWhyNoFork, "a child builds a new thread pool", test_fork_of_idle_pool);
  run_if(kCanFork, kWhyNoFork, "fork while another thread is in parallel_for",
         test_fork_during_a_job);
  run_if(kCanLimitMemory, "a sanitizer cannot live without address space",
         "parallel_for without new threads", test_no_more_threads);
}
