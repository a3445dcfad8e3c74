// Splits native work into ranges over one small pool of threads per process.
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
  RangeBody(Callable&& callable) noexcept  // implicit, so that lambdas can be passed directly
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        invoke_([](void* target, std::size_t begin, std::size_t end) {
          (*static_cast<std::remove_reference_t<Callable>*>(target))(begin, end);
        }) {}

  void operator()(std::size_t begin, std::size_t end) const { invoke_(callable_, begin, end); }

 private:
  void* callable_;
  void (*invoke_)(void*, std::size_t, std::size_t);
};

// Calls body(begin, end) on disjoint ranges that cover [0, total), on the calling thread and up to
// `threads` - 1 threads of the pool, and returns when all have finished.
//
// total:   work units; 0 calls nothing.
// chunk:   maximum work units per call of body, at least 1.
// threads: maximum number of threads, including the caller.
// body:    must not throw and must not fork.
//
// With threads <= 1 or total <= chunk everything runs on the caller without any synchronization.
// The same holds inside another body, and while the pool serves another thread: a second job would
// compete for the same cores, and waiting for the first could deadlock. If the system refuses new
// threads, the existing ones do the work. Never throws.
//
// After a fork the child starts with an empty pool, even if another thread of the parent was in
// here.
void parallel_for(std::size_t total, std::size_t chunk, std::size_t threads,
                  RangeBody body) noexcept;

// The same for bodies that may throw std::bad_alloc, which is rethrown when all have finished.
void parallel_for_allocating(std::size_t total, std::size_t chunk, std::size_t threads,
                             RangeBody body);

// parallel_for for bodies that mostly wait, such as for a disk: on threads of their own, so that no
// CPU idles meanwhile, and with up to `threads` at a time. They start when needed, and end after 10
// s without work.
void parallel_for_blocking(std::size_t total, std::size_t chunk, std::size_t threads,
                           RangeBody body) noexcept;

// Overrides the 10 s idle timeout, from the next idle period on.
void set_reader_idle_timeout(std::chrono::milliseconds timeout) noexcept;

// CPUs that this process may use, at least 1: the affinity mask on Linux, all CPUs elsewhere.
std::size_t available_cpus() noexcept;

}  // namespace pinfeed::runtime
