#include "runtime/shared_slot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace pinfeed::runtime {
namespace {

#if defined(__linux__)
#if !defined(MFD_NOEXEC_SEAL)
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int create_memory_file(const std::string& name) {
  // Systems may require that such files are not executable; kernels before 6.3 don't know the flag.
  const unsigned flags = MFD_CLOEXEC;
  const int descriptor = memfd_create(name.c_str(), flags | MFD_NOEXEC_SEAL);
  if (descriptor >= 0 || errno != EINVAL) return descriptor;
  return memfd_create(name.c_str(), flags);
}

// Reserves memory for a range of a file and extends the file: without it, a full file system or a
// system that does not overcommit would kill the writer with SIGBUS. Returns false, with errno, if
// there is not enough; a part of the range may then be reserved.
bool take_memory(int descriptor, std::size_t offset, std::size_t bytes) noexcept {
  // In pieces, because a signal undoes the call's work so far, and may come every millisecond.
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  for (std::size_t done = 0; done < bytes; done += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    while (fallocate(descriptor, 0, static_cast<off_t>(offset + done), static_cast<off_t>(piece)) !=
           0) {
      if (errno != EINTR) return false;
    }
  }
  return true;
}

// Frees the pages of a range, for all processes.
void punch(std::byte* data, std::size_t bytes) noexcept { madvise(data, bytes, MADV_REMOVE); }

#else

int create_memory_file(const std::string&) {
  errno = ENOSYS;
  return -1;
}

bool take_memory(int, std::size_t, std::size_t) noexcept {
  errno = ENOSYS;
  return false;
}

void punch(std::byte*, std::size_t) noexcept {}

#endif

// A received slot may be forged: access beyond the end of the file would kill the reader.
void require_slot(int descriptor, std::size_t offset, std::size_t capacity, bool is_new) {
  const std::size_t page = SharedSlot::page_bytes();
  constexpr std::size_t kMax = std::size_t{1} << 60;
  if (offset % page != 0 || capacity % page != 0 || offset > kMax || capacity > kMax) {
    throw std::invalid_argument("SharedSlot: offset and capacity must be multiples of " +
                                std::to_string(page) + ", got " + std::to_string(offset) + " and " +
                                std::to_string(capacity));
  }
  struct stat status{};
  if (!is_new && fstat(descriptor, &status) == 0 &&
      static_cast<std::size_t>(status.st_size) < offset + page + capacity) {
    throw std::invalid_argument("SharedSlot: the file ends before the slot does");
  }
}

}  // namespace

int create_shared_file(const std::string& name) {
  const int descriptor = create_memory_file(name);
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  return descriptor;
}

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

std::size_t SharedSlot::page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

SharedSlot::SharedSlot(int descriptor, std::size_t offset, std::size_t capacity, bool is_new)
    : offset_(offset), capacity_(capacity), process_(getpid()) {
  require_slot(descriptor, offset, capacity, is_new);
  const std::size_t bytes = page_bytes() + capacity;
  if (is_new && !take_memory(descriptor, offset, bytes)) {
    throw std::system_error(errno, std::generic_category(), "fallocate");
  }
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                             static_cast<off_t>(offset));
  if (mapping == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  mapping_ = static_cast<std::byte*>(mapping);
#if defined(__linux__)
  madvise(mapping, bytes, MADV_DONTDUMP);  // batches would make a core dump many gigabytes
#if defined(MADV_POPULATE_WRITE)
  // Populating all pages at once takes a fraction of the time of page faults, and reading existing
  // pages maps them in groups. Only advice: missing pages are mapped when they are touched.
  madvise(mapping, bytes, is_new ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
#endif
}

SharedSlot::~SharedSlot() { munmap(mapping_, page_bytes() + capacity_); }

std::byte* SharedSlot::data() const { return mapping_ + page_bytes(); }

bool SharedSlot::claim() noexcept {
  if (held_.exchange(true)) return false;
  // A sender's own array holds the slot while the message is counted.
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
