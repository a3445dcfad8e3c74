#include "runtime/guarded_map.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace pinfeed::runtime {

// All maps, in a table that a signal handler can search: no locks, nothing ever moves.
struct GuardedMaps {
  static constexpr std::size_t kMost = 16384;  // Linux allows a process 65,530 mappings in all

  static inline std::array<GuardedMap, kMost> table;
  static inline std::atomic<std::size_t> used{0};  // the first so many may be in use
  static inline std::size_t next_free = 0;         // where to look first
  static inline std::atomic_flag lock;             // of the table and the handler, never the search
  static inline struct sigaction previous;
  static inline std::atomic<bool> passed_on{false};  // a fault, since the handler was installed
  static inline const std::uintptr_t page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));

  // Puts zeros where the faulting page and all behind it were, if it lies in a map.
  static bool patch(std::uintptr_t address) noexcept {
    const std::size_t count = used.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      GuardedMap& map = table[i];
      const auto begin = reinterpret_cast<std::uintptr_t>(map.data());
      const std::uintptr_t end = begin + map.size();
      if (begin == 0 || address < begin || address >= end) continue;
      map.torn_.store(true, std::memory_order_release);  // before another thread can see a zero
      const std::uintptr_t from = address - address % page;
      void* const zeros = mmap(reinterpret_cast<void*>(from), end - from, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      return zeros != MAP_FAILED;
    }
    return false;
  }

  static void on_bus_error(int signal, siginfo_t* info, void*) {
    const int saved = errno;
    const bool is_fault = info->si_code > 0;  // and not sent by kill()
    if (!is_fault || !patch(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
      // Somebody else's. Whoever was there before sees it now: a fault happens again. One that
      // hands it back (faulthandler, if this one was there before it too) would do so forever.
      struct sigaction end = {};
      end.sa_handler = SIG_DFL;
      sigaction(SIGBUS, passed_on.exchange(true) ? &end : &previous, nullptr);
      if (!is_fault) raise(signal);
    }
    errno = saved;
  }

  static void acquire() noexcept {
    while (lock.test_and_set(std::memory_order_acquire)) {
    }
  }
  static void release() noexcept { lock.clear(std::memory_order_release); }
};

namespace {

// The thread that holds the lock while another forks is none of the child's.
[[maybe_unused]] const int fork_handler_registered =
    pthread_atfork(nullptr, nullptr, [] { GuardedMaps::release(); });

}  // namespace

void GuardedMap::arm() noexcept {
  struct sigaction current;
  if (sigaction(SIGBUS, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == GuardedMaps::on_bus_error) {
    return;
  }
  struct sigaction ours = {};
  ours.sa_sigaction = GuardedMaps::on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  GuardedMaps::acquire();
  struct sigaction replaced;
  if (sigaction(SIGBUS, &ours, &replaced) == 0 &&
      replaced.sa_sigaction != GuardedMaps::on_bus_error) {
    GuardedMaps::previous = replaced;
    GuardedMaps::passed_on.store(false);
  }
  GuardedMaps::release();
}

GuardedMap* GuardedMap::create(int fd, std::size_t bytes) noexcept {
  if (bytes == 0) return nullptr;
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  arm();
  GuardedMaps::acquire();
  std::size_t i = GuardedMaps::next_free;
  while (i < GuardedMaps::kMost && GuardedMaps::table[i].data() != nullptr) ++i;
  GuardedMap* const map = i < GuardedMaps::kMost ? &GuardedMaps::table[i] : nullptr;
  if (map != nullptr) {
    map->torn_.store(false, std::memory_order_relaxed);
    map->size_.store(bytes, std::memory_order_relaxed);
    map->data_.store(static_cast<const std::byte*>(data), std::memory_order_release);
    GuardedMaps::used.store(std::max(GuardedMaps::used.load(), i + 1));
    GuardedMaps::next_free = i + 1;
  }
  GuardedMaps::release();
  if (map == nullptr) {
    munmap(data, bytes);
  } else {
    map->find_witness();
  }
  return map;
}

void GuardedMap::find_witness() noexcept {
  const std::byte* const last = data() + size() - 1;
  const std::byte* const page = last - reinterpret_cast<std::uintptr_t>(last) % GuardedMaps::page;
  const std::byte* byte = last;
  while (byte > page && *byte == std::byte{0}) --byte;
  is_witness_set_ = *byte != std::byte{0};
  witness_.store(byte);
}

void GuardedMap::destroy() noexcept {
  void* const data = const_cast<std::byte*>(this->data());
  const std::size_t bytes = size();
  GuardedMaps::acquire();
  data_.store(nullptr);  // before the addresses can mean anything else
  const auto slot = static_cast<std::size_t>(this - GuardedMaps::table.data());
  GuardedMaps::next_free = std::min(GuardedMaps::next_free, slot);
  GuardedMaps::release();
  munmap(data, bytes);
}

}  // namespace pinfeed::runtime
