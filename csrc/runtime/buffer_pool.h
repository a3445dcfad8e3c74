// Recycled memory for batches: the first touch of a fresh page costs several times as much as
// filling it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <unordered_map>

namespace pinfeed::runtime {

// Note [Buffer pool]
//
// Requests of 64 KiB and more get a mapped buffer whose capacity is a size class, four per power of
// two, so at most 1.25 times the request; or an idle buffer of up to 2 times the request. Buffers
// are page-aligned; buffers of 2 MiB and more are aligned to 2 MiB and advised to use huge pages. A
// released buffer becomes idle. The buffer released last is reused first, because it is most likely
// in the cache. Idle memory is limited in two ways:
//   - in bytes, to max(32 MiB, twice the recent peak of live bytes), where the peak decays by 1/64
//     at every acquire; least recently used buffers go first. So a loop that drops a batch of many
//     tensors finds all its buffers again, and so do two alternating loops with other batch sizes;
//   - in time: a thread that exists only while needed frees buffers that were idle for 10 s.
// Smaller requests get memory of 64-byte alignment from malloc, which recycles it too.
//
// After a fork the child owns copies of the live buffers and may release them; it frees the idle
// buffers at once. The pool is never destroyed: other threads, and views that the interpreter drops
// late, may release buffers while the process exits.
class BufferPool {
 public:
  // Counts mapped buffers only, not requests below 64 KiB, which malloc serves.
  struct Stats {
    std::size_t live_buffers;
    std::size_t live_bytes;
    std::size_t idle_buffers;
    std::size_t idle_bytes;
    std::size_t mapped_total;  // buffers mapped so far
    std::size_t reused_total;  // acquires served by idle buffers so far
  };

  static BufferPool& instance();

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns memory for `bytes` bytes, with arbitrary contents; for 0 too, a pointer that no other
  // live buffer has. Throws std::bad_alloc.
  void* acquire(std::size_t bytes);

  // Releases memory from acquire; null is ignored. Any thread may call it, at any time.
  void release(void* data) noexcept;

  // Frees all idle memory.
  void trim() noexcept;

  Stats stats();

  // Whether acquire fills buffers with 0xCB, which exposes bytes that are never written. Initially
  // on if the environment has PINFEED_DEBUG=1.
  void set_poison(bool on) { poison_ = on; }
  bool poison() const { return poison_; }

  // How long a buffer may be idle before it is freed; for tests.
  void set_idle_timeout(std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    void* data;
    std::size_t capacity;  // bytes
    std::size_t size_class;
    Clock::time_point released_at;  // the epoch while live
  };
  using Entries = std::list<Entry>;  // a list, because moving its nodes never allocates

  static constexpr std::size_t kSizeClasses = 125;  // 64 KiB up to 128 TiB

  BufferPool();
  ~BufferPool() = delete;

  void* find_idle(std::size_t bytes, std::size_t size_class);
  void* map_new(std::size_t size_class);
  Entries& oldest_idle();
  void retire_oldest(Entries& retired) noexcept;
  void note_live_bytes() noexcept;
  void retire_excess(Entries& retired) noexcept;
  static void unmap(const Entries& retired) noexcept;
  static void* reaper_main(void* pool);
  void reap() noexcept;
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  std::atomic<bool> poison_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable reaper_wakeup_;
  std::unordered_map<void*, Entries::iterator> entries_;  // live and idle, by data
  Entries live_;
  std::array<Entries, kSizeClasses> idle_;  // by size class, least recently used first
  std::size_t live_bytes_ = 0;
  std::size_t idle_bytes_ = 0;
  std::size_t idle_buffers_ = 0;
  std::size_t mapped_total_ = 0;
  std::size_t reused_total_ = 0;
  std::size_t recent_live_peak_ = 0;  // of live_bytes_, decaying
  Clock::duration idle_timeout_ = std::chrono::seconds(10);
  bool reaper_exists_ = false;
};

}  // namespace pinfeed::runtime
