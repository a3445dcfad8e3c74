#include "runtime/shared_slot.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "runtime/shared_file.h"

namespace pinfeed::runtime {
namespace {

// Gives the pages of a range back to the system, for all processes.
void punch([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
  madvise(data, bytes, MADV_REMOVE);
#endif
}

}  // namespace

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

std::size_t SharedSlot::page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

SharedSlot::SharedSlot(int descriptor, std::size_t offset, std::size_t capacity, bool is_new)
    : offset_(offset), capacity_(capacity), process_(getpid()) {
  const std::size_t bytes = page_bytes() + capacity;
  if (is_new && !take_memory(descriptor, offset, bytes)) {
    throw std::system_error(errno, std::generic_category(), "fallocate");
  }
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                             static_cast<off_t>(offset));
  if (mapping == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  mapping_ = static_cast<std::byte*>(mapping);
#if defined(__linux__)
  madvise(mapping, bytes, MADV_DONTDUMP);  // batches in a core dump would be many gigabytes
#if defined(MADV_POPULATE_WRITE)
  // All pages at once take a fraction of the time of as many faults, and those that are there
  // already come in groups if they are read. Only advice: whatever is missing is mapped when it is
  // touched.
  madvise(mapping, bytes, is_new ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
#endif
}

SharedSlot::~SharedSlot() { munmap(mapping_, page_bytes() + capacity_); }

std::byte* SharedSlot::data() const { return mapping_ + page_bytes(); }

bool SharedSlot::claim() noexcept {
  if (held_.exchange(true)) return false;
  // What this process sends, it sends while an array of its own holds the slot.
  if (counts().sent == counts().returned) return true;
  held_ = false;
  return false;
}

bool SharedSlot::discard() noexcept {
  if (!claim()) return false;
  punch(mapping_, page_bytes() + capacity_);
  return true;
}

bool SharedSlot::receive() noexcept {
  ++counts().received;
  if (counts().retired == 0) return true;
  let_go();
  return false;
}

void SharedSlot::let_go() noexcept {
  if (getpid() != process_) return;
  ++counts().returned;
  if (counts().retired != 0) give_back_unread();
}

void SharedSlot::retire() noexcept {
  counts().retired = 1;
  give_back_unread();
}

void SharedSlot::give_back_unread() noexcept {
  if (readers() == 0) punch(data(), capacity_);
}

}  // namespace pinfeed::runtime
