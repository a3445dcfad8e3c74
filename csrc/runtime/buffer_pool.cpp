#include "runtime/buffer_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>

#include "runtime/background_thread.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kSmallestMapped = 64 * 1024;
constexpr std::size_t kSmallAlignment = 64;
constexpr std::size_t kHugePage = 2 * 1024 * 1024;
constexpr std::size_t kIdleBytesAlwaysAllowed = 32 * 1024 * 1024;
constexpr std::size_t kIdleTimesLivePeak = 2;
constexpr std::size_t kLargestRequest = std::size_t{1} << 47;
constexpr int kPoisonByte = 0xCB;

// Under AddressSanitizer, idle memory and bytes beyond the request are poisoned.
void forbid_access([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(data, bytes);
#endif
}

void allow_access([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

// Class 0 holds 64 KiB, class 1 80, then 96, 112, 128, 160, ...: four equal steps per power of two.
std::size_t size_class_of(std::size_t bytes) {
  const std::size_t last = bytes - 1;
  const std::size_t exponent = std::bit_width(last) - 1;
  const std::size_t quarter = (last >> (exponent - 2)) & 3;
  return (exponent - 15) * 4 + quarter - 3;
}

std::size_t capacity_of(std::size_t size_class) {
  const std::size_t quarters = size_class + 3;
  const std::size_t base = std::size_t{1} << (15 + quarters / 4);
  return base + (quarters % 4 + 1) * (base / 4);
}

// Null if the system has no memory left.
void* map_memory(std::size_t bytes) noexcept {
  const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* const mapped =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (slack == 0) return mapped;

  // Unmap the bytes before the first multiple of 2 MiB, and the bytes behind the buffer.
  char* const start = static_cast<char*>(mapped);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(start) & (kHugePage - 1);
  if (head > 0) munmap(start, head);
  munmap(start + head + bytes, slack - head);
#if defined(__linux__)
  madvise(start + head, bytes, MADV_HUGEPAGE);  // only advice: not all kernels support it
#endif
  return start + head;
}

void* allocate_small(std::size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, kSmallAlignment, std::max<std::size_t>(bytes, 1)) != 0) {
    throw std::bad_alloc();
  }
  return data;
}

bool debug_requested() {
  const char* const value = std::getenv("PINFEED_DEBUG");
  return value != nullptr && std::string_view(value) == "1";
}

// Created when the library is loaded: a fork by one thread while another creates the pool would
// leave the child a partial pool.
[[maybe_unused]] BufferPool& pool_at_load = BufferPool::instance();

}  // namespace

BufferPool& BufferPool::instance() {
  static BufferPool& pool = *new BufferPool;
  return pool;
}

BufferPool::BufferPool() : poison_(debug_requested()) {
  pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
}

void* BufferPool::acquire(std::size_t bytes) {
  void* data;
  if (bytes < kSmallestMapped) {
    data = allocate_small(bytes);
  } else if (bytes > kLargestRequest) {
    throw std::bad_alloc();
  } else {
    const std::size_t size_class = size_class_of(bytes);
    data = find_idle(bytes, size_class);
    if (data == nullptr) data = map_new(size_class);
    allow_access(data, bytes);
  }
  if (poison_) std::memset(data, kPoisonByte, bytes);
  return data;
}

// The idle buffer of the class, or of the next classes up to twice the size, that was released
// last; null without one.
void* BufferPool::find_idle(std::size_t bytes, std::size_t size_class) {
  void* data = nullptr;
  Entries retired;
  {
    const std::lock_guard lock(mutex_);
    for (; size_class < kSizeClasses && capacity_of(size_class) / 2 <= bytes; ++size_class) {
      Entries& idle = idle_[size_class];
      if (idle.empty()) continue;
      live_.splice(live_.end(), idle, std::prev(idle.end()));
      Entry& entry = live_.back();
      entry.released_at = {};
      live_bytes_ += entry.capacity;
      idle_bytes_ -= entry.capacity;
      --idle_buffers_;
      ++reused_total_;
      data = entry.data;
      note_live_bytes();
      break;
    }
    retire_excess(retired);  // the limit may have decayed
  }
  unmap(retired);
  return data;
}

void* BufferPool::map_new(std::size_t size_class) {
  const std::size_t capacity = capacity_of(size_class);
  Entries entry(1, Entry{nullptr, capacity, size_class, {}});
  void* data = map_memory(capacity);
  if (data == nullptr) {
    trim();
    data = map_memory(capacity);
    if (data == nullptr) throw std::bad_alloc();
  }
  entry.front().data = data;
  forbid_access(data, capacity);

  try {
    const std::lock_guard lock(mutex_);
    entries_.emplace(data, entry.begin());
    live_.splice(live_.end(), entry);
    live_bytes_ += capacity;
    note_live_bytes();
    ++mapped_total_;
  } catch (...) {
    unmap(entry);
    throw;
  }
  return data;
}

void BufferPool::release(void* data) noexcept {
  if (data == nullptr) return;
  Entries retired;
  bool start_reaper = false;
  {
    std::unique_lock lock(mutex_);
    const auto found = entries_.find(data);
    if (found == entries_.end()) {
      lock.unlock();
      std::free(data);  // a small one, from malloc
      return;
    }
    const Entries::iterator entry = found->second;
    assert(entry->released_at == Clock::time_point() && "released twice");
    entry->released_at = Clock::now();
    forbid_access(data, entry->capacity);
    Entries& idle = idle_[entry->size_class];
    idle.splice(idle.end(), live_, entry);
    live_bytes_ -= entry->capacity;
    idle_bytes_ += entry->capacity;
    ++idle_buffers_;
    retire_excess(retired);
    start_reaper = idle_buffers_ > 0 && !reaper_exists_;
    if (start_reaper) reaper_exists_ = true;
  }
  unmap(retired);
  if (start_reaper && !start_background_thread(&reaper_main, this)) {
    // Idle memory stays limited in bytes; the next release tries again.
    const std::lock_guard lock(mutex_);
    reaper_exists_ = false;
  }
}

void BufferPool::trim() noexcept {
  Entries retired;
  {
    const std::lock_guard lock(mutex_);
    while (idle_buffers_ > 0) retire_oldest(retired);
    reaper_wakeup_.notify_one();
  }
  unmap(retired);
}

BufferPool::Stats BufferPool::stats() {
  const std::lock_guard lock(mutex_);
  return {live_.size(), live_bytes_, idle_buffers_, idle_bytes_, mapped_total_, reused_total_};
}

void BufferPool::set_idle_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  idle_timeout_ = timeout;
  reaper_wakeup_.notify_one();
}

// The class with the least recently released buffer; there must be an idle buffer.
BufferPool::Entries& BufferPool::oldest_idle() {
  return *std::min_element(idle_.begin(), idle_.end(), [](const Entries& a, const Entries& b) {
    return !a.empty() && (b.empty() || a.front().released_at < b.front().released_at);
  });
}

// Removes the least recently used buffer from the tables. The caller unmaps it after unlocking,
// because that takes milliseconds for a large one. A fork in between leaves the child an unused
// mapping, which is harmless.
void BufferPool::retire_oldest(Entries& retired) noexcept {
  Entries& idle = oldest_idle();
  entries_.erase(idle.front().data);
  idle_bytes_ -= idle.front().capacity;
  retired.splice(retired.end(), idle, idle.begin());
  --idle_buffers_;
}

void BufferPool::note_live_bytes() noexcept {
  recent_live_peak_ = std::max(live_bytes_, recent_live_peak_ - recent_live_peak_ / 64);
}

void BufferPool::retire_excess(Entries& retired) noexcept {
  const std::size_t limit =
      std::max(kIdleBytesAlwaysAllowed, kIdleTimesLivePeak * recent_live_peak_);
  while (idle_bytes_ > limit) retire_oldest(retired);
}

void BufferPool::unmap(const Entries& retired) noexcept {
  for (const Entry& entry : retired) {
    allow_access(entry.data, entry.capacity);
    munmap(entry.data, entry.capacity);
  }
}

void* BufferPool::reaper_main(void* pool) {
  name_this_thread("pinfeed-reaper");
  static_cast<BufferPool*>(pool)->reap();
  return nullptr;
}

// Sleeps until the oldest idle buffer times out, so a buffer that is acquired and released all the
// time costs one wake-up per timeout. Ends when a wake-up finds no idle buffer.
void BufferPool::reap() noexcept {
  std::unique_lock lock(mutex_);
  while (idle_buffers_ > 0) {
    const Clock::time_point due = oldest_idle().front().released_at + idle_timeout_;
    if (Clock::now() < due) {
      reaper_wakeup_.wait_until(lock, due);
      continue;
    }
    Entries retired;
    retire_oldest(retired);
    lock.unlock();
    unmap(retired);
    lock.lock();
  }
  reaper_exists_ = false;
}

void BufferPool::before_fork() { instance().mutex_.lock(); }

void BufferPool::after_fork_in_parent() { instance().mutex_.unlock(); }

void BufferPool::after_fork_in_child() {
  BufferPool& pool = instance();
  // The parent's reaper may wait on this condition variable but does not exist here. Neither a
  // notify nor a destructor may wait for it, so a new object replaces the old one.
  std::construct_at(&pool.reaper_wakeup_);
  pool.reaper_exists_ = false;
  pool.mutex_.unlock();
  pool.trim();
}

}  // namespace pinfeed::runtime
