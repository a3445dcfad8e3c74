// Slots of shared memory: by threads, forked processes and processes that are killed.
#include "runtime/shared_slot.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/concurrency.h"

namespace pinfeed::tests {
namespace {

using runtime::create_shared_file;
using runtime::SharedSlot;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kCapacity = 256 * kKiB;

// A file with several slots.
struct File {
  int descriptor = create_shared_file("pinfeed-test");
  std::vector<std::unique_ptr<SharedSlot>> slots;

  explicit File(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) slots.push_back(mapped(i, true));
  }
  ~File() { close(descriptor); }

  // The slot as another process maps it.
  std::unique_ptr<SharedSlot> mapped(std::size_t number, bool is_new = false) const {
    const std::size_t offset = number * (SharedSlot::page_bytes() + kCapacity);
    return std::make_unique<SharedSlot>(descriptor, offset, kCapacity, is_new);
  }
  // The memory that the system counts.
  std::size_t bytes_in_memory() const {
    struct stat status;
    CHECK(fstat(descriptor, &status) == 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }
};

void test_a_slot_is_free_when_all_have_let_go() {
  File file(1);
  SharedSlot& writer = *file.slots[0];
  const auto reader = file.mapped(0);
  CHECK(writer.claim() && !writer.claim());
  std::memset(writer.data(), 7, kCapacity);
  writer.send();
  writer.send();
  writer.drop();
  CHECK(!writer.claim() && !writer.discard());  // messages are in transit
  CHECK(reader->receive() && reader->receive() && reader->readers() == 2);
  CHECK(passes_in_fork([&] { reader->let_go(); }) && reader->readers() == 2);
  CHECK(reader->data()[kCapacity - 1] == std::byte{7});
  reader->let_go();
  CHECK(!writer.claim());
  reader->let_go();
  CHECK(reader->readers() == 0 && writer.claim() && writer.data()[0] == std::byte{7});
  writer.drop();
  CHECK(writer.claim());
}

void test_a_free_slot_gives_its_memory_back() {
  File file(2);
  const std::size_t all = file.bytes_in_memory();
  CHECK(all >= 2 * kCapacity);
  CHECK(file.slots[0]->discard() && !file.slots[0]->claim() && !file.slots[0]->discard());
  CHECK(file.bytes_in_memory() == all / 2);
}

void test_memory_goes_when_a_slot_retires_or_its_last_reader_lets_go() {
  File file(2);
  const std::size_t all = file.bytes_in_memory();
  const auto reader = file.mapped(1);
  for (const auto& slot : file.slots) {
    CHECK(slot->claim());
    std::memset(slot->data(), 7, kCapacity);
    slot->send();
    slot->drop();
  }
  CHECK(reader->receive());
  for (const auto& slot : file.slots) slot->retire();
  CHECK(file.bytes_in_memory() == all - kCapacity);
  CHECK(reader->data()[0] == std::byte{7});
  CHECK(!reader->receive() && !file.mapped(0)->receive());  // too late
  CHECK(reader->data()[0] == std::byte{7});
  reader->let_go();
  CHECK(file.bytes_in_memory() == all - 2 * kCapacity);
}

void test_memory_that_there_is_not() {
  CHECK(passes_in_fork([] {
    File file(1);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kCapacity, kCapacity};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int error = 0;
    try {
      file.mapped(1, true);
    } catch (const std::system_error& refused) {
      error = refused.code().value();
    }
    CHECK(error == EFBIG);
  }));
}

// Threads write and others read, while slots retire. Readers get the bytes that were sent.
void test_threads() {
  struct Message {
    std::size_t slot;
    unsigned mark;
  };
  for (int round = 0; round < 20; ++round) {
    File file(4);
    std::mutex mutex;
    std::deque<Message> queue;
    std::atomic<bool> is_over = false;
    std::atomic<int> good = 0;
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      threads.emplace_back([&, seed] {
        for (unsigned i = 0; !is_over; ++i) {
          const std::size_t number = i % 4;
          SharedSlot& slot = *file.slots[number];
          if (!slot.claim()) continue;
          const unsigned mark = seed << 24 | i;
          auto* const data = reinterpret_cast<unsigned*>(slot.data());
          for (std::size_t j = 0; j < 4; ++j) data[j * 16'000] = mark;
          slot.send();
          {
            const std::lock_guard lock(mutex);
            queue.push_back({number, mark});
          }
          slot.drop();
        }
      });
      threads.emplace_back([&] {
        while (!is_over) {
          std::optional<Message> message;
          {
            const std::lock_guard lock(mutex);
            if (!queue.empty()) {
              message = queue.front();
              queue.pop_front();
            }
          }
          if (!message) continue;
          SharedSlot& slot = *file.slots[message->slot];
          if (!slot.receive()) continue;
          const auto* const data = reinterpret_cast<const unsigned*>(slot.data());
          for (std::size_t j = 0; j < 4; ++j) CHECK(data[j * 16'000] == message->mark);
          slot.let_go();
          ++good;
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(eventually([&] { return good > 0; }));  // a busy machine may not run it within 10 ms
    for (int i = 0; i < 3; ++i) {
      // The writer of a retired slot has ended: claim the slot, so that no thread writes, and
      // retire it.
      SharedSlot& slot = *file.slots[i];
      if (eventually([&] { return slot.claim(); })) slot.retire();
    }
    is_over = true;
    for (std::thread& thread : threads) thread.join();
  }
}

struct Note {
  std::size_t slot;
  std::uint64_t mark;
};

// A worker that sends until it is killed; each message carries the pattern that it wrote.
[[noreturn]] void keep_sending(File& file, int pipe, std::uint64_t seed) {
  for (std::uint64_t i = 0;; ++i) {
    const std::size_t number = i % file.slots.size();
    SharedSlot& slot = *file.slots[number];
    if (!slot.claim()) continue;
    const Note note{number, seed << 32 | i};
    auto* const data = reinterpret_cast<std::uint64_t*>(slot.data());
    std::fill(data, data + 4000, note.mark);
    slot.send();
    slot.drop();
    if (write(pipe, &note, sizeof note) != sizeof note) _exit(1);
  }
}

// Workers are killed at any instruction while the main process reads. Every batch holds the bytes
// that were sent, and a worker's memory is freed once the main process has noticed its end and
// released the batches.
void test_kills_at_any_instruction() {
  std::minstd_rand random(1);
  std::size_t good = 0;
  for (unsigned round = 1; round <= 150; ++round) {
    File file(3);
    const std::size_t all = file.bytes_in_memory();
    std::vector<std::unique_ptr<SharedSlot>> read;
    for (std::size_t i = 0; i < 3; ++i) read.push_back(file.mapped(i));
    std::array<int, 2> pipes;
    CHECK(pipe(pipes.data()) == 0);
    const pid_t pid = fork();
    if (pid == 0) keep_sending(file, pipes[1], round);
    close(pipes[1]);
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 8000);
    bool killed = false;
    std::optional<std::size_t> kept;  // a slot with an array that is viewed for longer
    std::uint64_t kept_mark = 0;
    while (true) {
      pollfd readable{pipes[0], POLLIN, 0};
      poll(&readable, 1, 1);
      Note note;
      if ((readable.revents & POLLIN) != 0 && ::read(pipes[0], &note, sizeof note) > 0) {
        SharedSlot& slot = *read[note.slot];
        CHECK(slot.receive());  // also from the dead, unless the slot was retired
        const auto* const data = reinterpret_cast<const std::uint64_t*>(slot.data());
        CHECK(std::all_of(data, data + 4000, [&](auto word) { return word == note.mark; }));
        if (!kept) {
          kept = note.slot;
          kept_mark = note.mark;
        } else {
          slot.let_go();
        }
        ++good;
      } else if (killed) {
        break;
      }
      if (!killed && std::chrono::steady_clock::now() > until) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        killed = true;
      }
    }
    close(pipes[0]);
    for (const auto& slot : read) slot->retire();
    if (kept) {
      CHECK(file.bytes_in_memory() == all - 2 * kCapacity);
      const auto* const data = reinterpret_cast<const std::uint64_t*>(read[*kept]->data());
      CHECK(std::all_of(data, data + 4000, [&](auto word) { return word == kept_mark; }));
      read[*kept]->let_go();
    }
    CHECK(file.bytes_in_memory() == all - 3 * kCapacity);
  }
  CHECK(good > 150);
  std::printf("       %zu batches\n", good);
}

}  // namespace
}  // namespace pinfeed::tests

int main() {
  using namespace pinfeed::tests;
#if defined(__linux__)
  run("slot: free when all readers have released it", test_a_slot_is_free_when_all_have_let_go);
  run("slot: discard frees the memory of a free slot", test_a_free_slot_gives_its_memory_back);
  run("slot: memory is freed when it retires or its last reader releases it",
      test_memory_goes_when_a_slot_retires_or_its_last_reader_lets_go);
  run("slot: not enough memory", test_memory_that_there_is_not);
  run("slot: kills at any instruction", test_kills_at_any_instruction);
  run("slot: threads", test_threads);
#endif
  return summary();
}
