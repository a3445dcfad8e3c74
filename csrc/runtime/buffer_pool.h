// Memory for batches that is mapped once and then reused: the first touch of a fresh page costs
// several times what filling it does, so a batch in a used buffer is what makes the rest fast.
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
// Requests of 64 KiB and more get a mapped buffer whose capacity is a size class, four to each
// power of two, hence at most 1.25 times the request, or an idle one of up to 2 times the request.
// Buffers are page-aligned; those of 2 MiB and more are aligned to 2 MiB and advised to be huge
// pages. A released buffer becomes idle, and the one released last is handed out first: its bytes
// are the likeliest to be in cache. Idle memory is bounded in two ways:
//   - in bytes, by max(32 MiB, twice the most that was live at once recently), where "recently" is
//     a maximum that decays by 1/64 at every acquire; the least recently used buffers go first. So
//     a loop that drops a batch of any number of tensors finds all of them again, and two loops in
//     turns, whose batches have other sizes, find those of both;
//   - in time: a thread that exists only while it is needed gives back what was idle for 10 s.
// Smaller requests get plain memory of 64-byte alignment, which malloc recycles as well.
//
// After a fork the child owns copies of the live buffers and may release them; the idle ones, whose
// contents nobody wants, are given back in the child at once. The pool is never destroyed: other
// threads, and views that the interpreter drops late, may release buffers while the process exits.
class BufferPool {
 public:
  // Counts mapped buffers only; requests below 64 KiB are left to malloc and appear nowhere.
  struct Stats {
    std::size_t live_buffers;
    std::size_t live_bytes;
    std::size_t idle_buffers;
    std::size_t idle_bytes;
    std::size_t mapped_total;  // buffers ever mapped
    std::size_t reused_total;  // acquires ever served by an idle buffer
  };

  static BufferPool& instance();

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns memory for `bytes` bytes, of any contents; also for 0 a pointer that no other live
  // buffer has. Throws std::bad_alloc.
  void* acquire(std::size_t bytes);

  // Takes back what acquire returned; null is ignored. Any thread may call it, at any time.
  void release(void* data) noexcept;

  // Gives all idle memory back to the system.
  void trim() noexcept;

  Stats stats();

  // Whether acquire fills what it hands out with 0xCB, so that bytes nobody wrote are seen. On from
  // the start if the environment has PINFEED_DEBUG=1.
  void set_poison(bool on) { poison_ = on; }
  bool poison() const { return poison_; }

  // How long a buffer may be idle before it is given back; for tests.
  void set_idle_timeout(std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    void* data;
    std::size_t capacity;  // bytes
    std::size_t size_class;
    Clock::time_point released_at;  // the epoch while live
  };
  using Entries = std::list<Entry>;  // a list, since moving its nodes never allocates

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
  std::unordered_map<void*, Entries::iterator> entries_;  // by data, live and idle
  Entries live_;
  std::array<Entries, kSizeClasses> idle_;  // by size class, each from least to most recently used
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
