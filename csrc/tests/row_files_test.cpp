// Rows of files: read, mapped, requested ahead, by many threads, across forks.
#include "runtime/row_files.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/thread_pool.h"
#include "tests/check.h"
#include "tests/concurrency.h"
#include "tests/row_files_case.h"

void file_reads_tests();
void row_file_failure_tests();

namespace {

using namespace std::chrono_literals;
using namespace pinfeed::tests;

void test_one_file() {
  Folder folder;
  folder.add(size_of(1000));
  for (const bool cold : {true, false}) {
    RowFiles files({opened(folder.path(0))});
    for (unsigned seed = 0; seed < 4; ++seed) {
      if (cold) folder.cool(0);
      CHECK(reads_right(files, random_batch(1, 1000, seed), seed));
    }
    CHECK(becomes_hot(files, random_batch(1, 1000, 9)));
  }
}

void test_neighbors_and_nothing() {
  Folder folder;
  folder.add(size_of(1000));
  RowFiles files({opened(folder.path(0))});
  Batch neighbors;  // more adjacent rows than one call of preadv accepts
  for (std::int64_t i = 0; i < 1000; ++i) neighbors.add(0, i);
  CHECK(reads_right(files, neighbors));
  Batch nothing;
  nothing.add(0, 1000, 0);  // at the very end
  nothing.add(0, 3, 0);
  nothing.add(0, 3);
  CHECK(reads_right(files, nothing));
  CHECK(!files.read({}, 1));
}

// One mapping remains: the first thread's.
void test_threads_that_map_one_file() {
  Folder folder;
  const RowFile file = folder.add(size_of(8));
  for (int trial = 0; trial < 50; ++trial) {
    RowFiles files({file});
    std::atomic<int> ready{0};
    std::array<const std::byte*, 3> found{};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        ++ready;
        while (ready < 3) std::this_thread::yield();
        found[i] = files.map(0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(found[0] != nullptr && found[1] == found[0] && found[2] == found[0]);
    CHECK(maps_right(files, random_batch(1, 8, 0)));
  }
}

void test_many_files() {
  Folder folder;
  std::vector<RowFile> parts;
  constexpr std::size_t kParts = 600;  // more than stay open
  for (std::size_t i = 0; i < kParts; ++i) parts.push_back(folder.add(size_of(8)));
  RowFiles files(parts);
  for (std::size_t i = 0; i < kParts; i += 3) folder.cool(i);
  for (unsigned seed = 0; seed < 4; ++seed) {
    CHECK(reads_right(files, random_batch(kParts, 8, seed, 2000), 3));
  }
  CHECK(becomes_hot(files, random_batch(kParts, 8, 9, 2000)));
  CHECK(maps_right(files, random_batch(kParts, 8, 10, 2000)));
}

void test_threads() {
  Folder folder;
  std::vector<RowFile> parts;
  for (int i = 0; i < 300; ++i) parts.push_back(folder.add(size_of(8)));
  RowFiles files(parts);
  std::atomic<bool> all_right{true};
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (unsigned i = 0; i < 20; ++i) {
        const Batch batch = random_batch(parts.size(), 8, thread * 100 + i);
        if (!maps_right(files, batch) && !reads_right(files, batch)) all_right = false;
      }
    });
  }
  for (unsigned i = 0; i < 20; ++i) folder.cool(i);
  for (std::thread& thread : threads) thread.join();
  CHECK(all_right);
}

void test_fork() {
  Folder folder;
  std::vector<RowFile> parts;
  for (int i = 0; i < 300; ++i) parts.push_back(folder.add(size_of(8)));
  RowFiles files(parts);
  std::atomic<bool> stop{false};
  std::atomic<bool> all_right{true};
  std::thread busy([&] {
    for (unsigned i = 0; !stop; ++i) {
      const Batch batch = random_batch(parts.size(), 8, i);
      if (!maps_right(files, batch) && !reads_right(files, batch, 3)) all_right = false;
      if (i % 8 == 0) folder.cool(i % 300);
    }
  });
  for (unsigned i = 0; i < 20; ++i) {
    CHECK(passes_in_fork([&] { CHECK(reads_right(files, random_batch(parts.size(), 8, i), 3)); }));
  }
  stop = true;
  busy.join();
  CHECK(all_right);
}

#if defined(__linux__)
void test_readers_end() {
  pinfeed::runtime::set_reader_idle_timeout(50ms);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> met{0};
    pinfeed::runtime::parallel_for_blocking(8, 1, 8, [&](std::size_t, std::size_t) {
      ++met;
      CHECK(eventually([&] { return met == 8; }));
    });
    CHECK(eventually([] { return threads_named("pinfeed-read") == 0; }));
  }
  pinfeed::runtime::set_reader_idle_timeout(10s);
}
#endif

}  // namespace

int main() {
  run("rows: of one file, cold and hot", test_one_file);
  run("rows: neighbors, and rows of no bytes", test_neighbors_and_nothing);
  run("rows: threads that map one file", test_threads_that_map_one_file);
  run("rows: of many files", test_many_files);
  file_reads_tests();
  row_file_failure_tests();
  run("rows: several threads", test_threads);
  // A child hung there once in some 2,000 forks with a sanitizer, and never in 2,000 without.
  run_if(kCanFork && !PINFEED_UNDER_ASAN,
         "a sanitizer's own locks may stay locked in a child, if other threads allocate",
         "rows: forks while another thread reads", test_fork);
#if defined(__linux__)
  run("rows: threads that wait for the disk end when they are idle", test_readers_end);
#endif
  return summary();
}
