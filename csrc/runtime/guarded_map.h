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

  // Whether the file can't have lost any byte but zeros since it was mapped; without asking the
  // system. False for one that was written to, perhaps.
  //
  // What is cut off within the last page that a file keeps reads as zeros, and raises nothing. So
  // the last byte that was none is looked at: where it is still there, so is all before it.
  bool seems_whole() const noexcept {
    const auto* const witness =
        const_cast<const volatile std::byte*>(witness_.load(std::memory_order_relaxed));
    return (*witness != std::byte{0} || !is_witness_set_) && !torn();
  }

 private:
  friend struct GuardedMaps;
  void find_witness() noexcept;

  std::atomic<const std::byte*> data_{nullptr};  // null: free
  std::atomic<std::size_t> size_{0};
  std::atomic<bool> torn_{false};
  std::atomic<const std::byte*> witness_{nullptr};  // in the last page
  bool is_witness_set_ = false;                     // whether it was no zero
};

}  // namespace pinfeed::runtime
