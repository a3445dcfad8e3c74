#include "runtime/thread_pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <new>
#include <thread>

#include "runtime/background_thread.h"

namespace pinfeed::runtime {
namespace {

// True while this thread runs a body: nested calls stay on this thread.
thread_local bool inside_body = false;

// One call of parallel_for, on the stack of its caller, who returns only when no other thread can
// reach it any more.
struct Job {
  const RangeBody body;
  const std::size_t total;
  const std::size_t chunk;
  const std::size_t chunk_count;
  std::atomic<std::size_t> next_chunk{0};

  // Claims chunks until none remain. Relaxed order is enough: the counter only hands out numbers,
  // and the pool's mutex publishes the bodies' writes.
  void run_claimed_chunks() noexcept {
    for (;;) {
      const std::size_t index = next_chunk.fetch_add(1, std::memory_order_relaxed);
      if (index >= chunk_count) return;
      const std::size_t begin = index * chunk;
      body(begin, begin + std::min(chunk, total - begin));
    }
  }
};

class ThreadPool {
 public:
  ThreadPool(const char* thread_name, const std::atomic<std::int64_t>& idle_ms) noexcept
      : thread_name_(thread_name), idle_ms_(idle_ms) {}

  // Runs the job on the caller and up to `helpers` threads of the pool. Returns false, without any
  // work done, if the pool serves another job or has no thread to offer.
  bool try_run(Job& job, std::size_t helpers) noexcept {
    if (in_use_.test_and_set(std::memory_order_acquire)) return false;
    grow(helpers);
    const bool is_served = serve(job, helpers);
    in_use_.clear(std::memory_order_release);
    return is_served;
  }

 private:
  void grow(std::size_t threads) noexcept {
    std::unique_lock lock(mutex_);
    while (thread_count_ < threads) {
      ++thread_count_;
      lock.unlock();
      const bool has_started = start_background_thread(&ThreadPool::thread_main, this);
      lock.lock();
      if (!has_started) {
        --thread_count_;
        return;
      }
    }
  }

  bool serve(Job& job, std::size_t helpers) noexcept {
    bool is_for_all = false;
    {
      const std::lock_guard lock(mutex_);
      if (thread_count_ == 0) return false;
      helpers = std::min(helpers, thread_count_);
      is_for_all = helpers == thread_count_;
      job_ = &job;
      seats_ = helpers;
    }
    if (is_for_all) {
      job_ready_.notify_all();
    } else {
      for (std::size_t i = 0; i < helpers; ++i) job_ready_.notify_one();
    }
    job.run_claimed_chunks();
    // The last chunk of another thread often ends soon, and a wake-up costs 20 us more than
    // polling; on a busy machine a yield gives that thread the core it needs.
    for (int i = 0; i < 100 && seated_.load(std::memory_order_relaxed) > 0; ++i) {
      std::this_thread::yield();
    }
    // A thread that wakes up after this point finds no seat, so the job waits only for seated
    // threads, never for a thread that the system schedules late.
    std::unique_lock lock(mutex_);
    seats_ = 0;
    job_done_.wait(lock, [this] { return seated_ == 0; });
    job_ = nullptr;
    return true;
  }

  static void* thread_main(void* pool) {
    static_cast<ThreadPool*>(pool)->take_seats();
    return nullptr;
  }

  void take_seats() noexcept {
    inside_body = true;
    std::unique_lock lock(mutex_);
    char name[16];
    std::snprintf(name, sizeof name, "%s-%u", thread_name_, ++named_threads_ % 1'000U);
    name_this_thread(name);
    for (;;) {
      if (!wait_for_seat(lock)) {
        --thread_count_;
        return;
      }
      --seats_;
      ++seated_;
      Job* const job = job_;
      lock.unlock();
      job->run_claimed_chunks();
      lock.lock();
      if (--seated_ == 0) job_done_.notify_one();
    }
  }

  // Returns false after the idle timeout: the thread should end.
  bool wait_for_seat(std::unique_lock<std::mutex>& lock) noexcept {
    const auto is_one_free = [this] { return seats_ > 0; };
    const std::chrono::milliseconds idle{idle_ms_.load(std::memory_order_relaxed)};
    if (idle.count() > 0) return job_ready_.wait_for(lock, idle, is_one_free);
    job_ready_.wait(lock, is_one_free);
    return true;
  }

  const char* const thread_name_;
  const std::atomic<std::int64_t>& idle_ms_;
  std::atomic_flag in_use_;  // held by the thread whose job is being served

  std::mutex mutex_;  // guards changes of everything below
  std::size_t thread_count_ = 0;
  std::condition_variable job_ready_;
  std::condition_variable job_done_;
  Job* job_ = nullptr;
  std::size_t seats_ = 0;               // threads that may still join job_
  std::atomic<std::size_t> seated_{0};  // threads that joined it and have not finished
  unsigned named_threads_ = 0;
};

// The pools are never destroyed: at exit their threads may be asleep on condition variables and
// other threads of the process may still be in parallel_for; the system reclaims everything.
struct SharedPool {
  const char* thread_name;
  std::atomic<std::int64_t> idle_ms;  // idle timeout of threads; 0: never
  std::atomic<ThreadPool*> pool{nullptr};
};
SharedPool workers{"pinfeed", 0};  // one thread per CPU, in constant use
SharedPool readers{"pinfeed-read", 10'000};

// A child has none of its parent's threads, and one of them may have locked the mutex of the
// parent's pool. So the child drops that pool without touching it and creates its own when needed.
// Registered when the library is loaded, before any thread can be in here.
[[maybe_unused]] const int fork_handler_registered = pthread_atfork(nullptr, nullptr, [] {
  workers.pool.store(nullptr);
  readers.pool.store(nullptr);
});

// Null without memory for a pool.
ThreadPool* find_or_create_pool(SharedPool& shared) noexcept {
  ThreadPool* pool = shared.pool.load(std::memory_order_acquire);
  if (pool != nullptr) return pool;
  auto* const created = new (std::nothrow) ThreadPool(shared.thread_name, shared.idle_ms);
  if (shared.pool.compare_exchange_strong(pool, created)) return created;
  delete created;  // another thread was faster, and `pool` now holds its pool
  return pool;
}

void run(SharedPool& shared, std::size_t total, std::size_t chunk, std::size_t threads,
         RangeBody body) noexcept {
  if (total == 0) return;
  chunk = std::max<std::size_t>(chunk, 1);
  Job job{body, total, chunk, total / chunk + (total % chunk != 0)};
  const bool was_inside = inside_body;
  inside_body = true;
  const std::size_t helpers =
      was_inside ? 0 : std::min(std::max<std::size_t>(threads, 1), job.chunk_count) - 1;
  ThreadPool* const pool = helpers > 0 ? find_or_create_pool(shared) : nullptr;
  if (pool == nullptr || !pool->try_run(job, helpers)) job.run_claimed_chunks();
  inside_body = was_inside;
}

}  // namespace

void parallel_for(std::size_t total, std::size_t chunk, std::size_t threads,
                  RangeBody body) noexcept {
  run(workers, total, chunk, threads, body);
}

void parallel_for_allocating(std::size_t total, std::size_t chunk, std::size_t threads,
                             RangeBody body) {
  std::atomic<bool> lacks_memory = false;
  parallel_for(total, chunk, threads, [&](std::size_t begin, std::size_t end) {
    try {
      body(begin, end);
    } catch (const std::bad_alloc&) {
      lacks_memory = true;
    }
  });
  if (lacks_memory) throw std::bad_alloc();
}

void parallel_for_blocking(std::size_t total, std::size_t chunk, std::size_t threads,
                           RangeBody body) noexcept {
  run(readers, total, chunk, threads, body);
}

void set_reader_idle_timeout(std::chrono::milliseconds timeout) noexcept {
  readers.idle_ms = std::max<std::int64_t>(timeout.count(), 1);
}

std::size_t available_cpus() noexcept {
#if defined(__linux__)
  cpu_set_t allowed;
  // Fails on machines with more CPUs than a cpu_set_t holds (1024).
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return static_cast<std::size_t>(std::max(CPU_COUNT(&allowed), 1));
  }
#endif
  return std::max(std::thread::hardware_concurrency(), 1U);
}

}  // namespace pinfeed::runtime
