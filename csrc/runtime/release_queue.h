// Slots whose last tensor died, until somebody has made sure that no device reads them any more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace pinfeed::runtime {

// Any thread may put slots in, with whatever locks it holds: nothing is called here.
class ReleaseQueue {
 public:
  void push(std::uint32_t slot) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      slots_.push_back(slot);
    } catch (const std::bad_alloc&) {
      return;  // it is never used again, which is better than too early
    }
    changed_.notify_one();
  }

  // All slots that were put in, as soon as there is one; none if there is none for so long, or
  // after `wake`.
  std::vector<std::uint32_t> take(std::chrono::duration<double> patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return !slots_.empty() || woken_; });
    woken_ = false;
    return std::exchange(slots_, {});
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> slots_;
  bool woken_ = false;
};

}  // namespace pinfeed::runtime
