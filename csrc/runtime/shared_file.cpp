#include "runtime/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace pinfeed::runtime {
namespace {

#if defined(__linux__)
#if !defined(MFD_NOEXEC_SEAL)
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int create_memory_file(const std::string& name) {
  // Systems may insist that such files can't be executed; kernels before 6.3 don't know the flag.
  const unsigned flags = MFD_CLOEXEC;
  const int descriptor = memfd_create(name.c_str(), flags | MFD_NOEXEC_SEAL);
  if (descriptor >= 0 || errno != EINVAL) return descriptor;
  return memfd_create(name.c_str(), flags);
}
#else
int create_memory_file(const std::string&) {
  errno = ENOSYS;
  return -1;
}
#endif

}  // namespace

int create_shared_file(const std::string& name) {
  const int descriptor = create_memory_file(name);
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  return descriptor;
}

#if defined(__linux__)
bool take_memory(int descriptor, std::size_t offset, std::size_t bytes) noexcept {
  // In pieces, for a signal undoes what the call has done so far, and may come every millisecond.
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
#else
bool take_memory(int, std::size_t, std::size_t) noexcept {
  errno = ENOSYS;
  return false;
}
#endif

}  // namespace pinfeed::runtime
