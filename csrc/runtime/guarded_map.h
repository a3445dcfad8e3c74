// Files mapped for reading, whose end may go missing without ending the process.
#pragma once

#include <atomic>
#include <cstddef>

namespace pinfeed::runtime {

// Note [Guarded maps]
//
// Reading a mapped page that the file no longer has, or that the disk can't deliver, raises SIGBUS,
// by default the end of the process. For the maps made here a handler puts pages of zeros in the
// place of what is gone, notes it, and lets the read go on; whoever reads asks torn() afterwards
// and throws the result away. Faults elsewhere go to the handler that was there before, as if this
// one had never been. It is installed when a map is made or about to be read, again if somebody
// else's (torch's, in a DataLoader worker) has taken its place.
//
// Never a mapping of the user's: to whom the zeros would look like data.
class GuardedMap {
 public:
  // Maps `bytes` bytes of a file from its beginning, read-only. Null if the system refuses, or if
  // there are too many maps already.
  static GuardedMap* create(int fd, std::size_t bytes) noexcept;
  void destroy() noexcept;

  // Call before reading.
  static void arm() noexcept;

  const std::byte* data() const { return data_.load(std::memory_order_relaxed); }
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }
  // Whether a page of it was gone when it was read. Stays so.
  bool torn() const { return torn_.load(std::memory_order_acquire); }

 private:
  friend struct GuardedMaps;
  std::atomic<const std::byte*> data_{nullptr};  // null: free
  std::atomic<std::size_t> size_{0};
  std::atomic<bool> torn_{false};
};

}  // namespace pinfeed::runtime
