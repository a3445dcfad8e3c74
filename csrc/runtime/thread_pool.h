// Cuts native work into ranges over one small pool of threads that the whole process shares.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace pinfeed::runtime {

// A non-owning reference to a callable void(std::size_t begin, std::size_t end). It allocates
// nothing, and the callable must outlive it.
class RangeBody {
 public:
  template <typename Callable>
    requires(!std::same_as<std::remove_cvref_t<Callable>, RangeBody> &&
             std::invocable<Callable&, std::size_t, std::size_t>)
  RangeBody(Callable&& callable) noexcept  // implicit, so that a lambda can be passed as it is
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        invoke_([](void* target, std::size_t begin, std::size_t end) {
          (*static_cast<std::remove_reference_t<Callable>*>(target))(begin, end);
        }) {}

  void operator()(std::size_t begin, std::size_t end) const { invoke_(callable_, begin, end); }

 private:
  void* callable_;
  void (*invoke_)(void*, std::size_t, std::size_t);
};

// Calls body(begin, end) on disjoint ranges that cover [0, total), on the calling thread and on up
// to `threads` - 1 threads of the pool, and returns when all of them are done.
//
// total:   work units; 0 calls nothing.
// chunk:   most work units per call of body, at least 1.
// threads: most threads that take part, the caller included.
// body:    must not throw and must not fork.
//
// With threads <= 1 or total <= chunk everything runs on the caller without any synchronization.
// So it does inside another body, and while the pool serves another thread: a second job would
// compete for the same cores, and waiting for the first could deadlock. If the system refuses new
// threads, the work is done by those that exist. Never throws.
//
// After a fork the child starts with a pool of no threads, even if the fork happened while another
// thread of the parent was in here.
void parallel_for(std::size_t total, std::size_t chunk, std::size_t threads,
                  RangeBody body) noexcept;

// The same for bodies that may throw std::bad_alloc, which this throws when all of them are done.
void parallel_for_allocating(std::size_t total, std::size_t chunk, std::size_t threads,
                             RangeBody body);

// parallel_for for bodies that mostly wait, for a disk say: on threads of their own, so that no CPU
// stands idle meanwhile, and as many at a time as `threads` says. They start when they are needed,
// and end when nobody needed them for 10 s.
void parallel_for_blocking(std::size_t total, std::size_t chunk, std::size_t threads,
                           RangeBody body) noexcept;

// Another time than 10 s, from the next time on that such a thread has nothing to do.
void set_reader_idle_timeout(std::chrono::milliseconds timeout) noexcept;

// CPUs that this process may use, at least 1: the affinity mask on Linux, all CPUs elsewhere.
std::size_t available_cpus() noexcept;

}  // namespace pinfeed::runtime
