#include "runtime/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
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

// Has a name for a moment only. A process that is killed in that moment leaves an empty file, whose
// name the next one with its number passes over.
int create_posix_file(const std::string& name) {
  for (int number = 0; number < 100; ++number) {
    std::string path = "/";
    path += name;
    if (number > 0) path.append("-").append(std::to_string(number));
    const int descriptor = shm_open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (descriptor < 0 && errno == EEXIST) continue;
    if (descriptor < 0) return -1;
    shm_unlink(path.c_str());
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return descriptor;
  }
  return -1;
}

}  // namespace

int create_shared_file(const std::string& name, SharedFile kind) {
  int descriptor = kind == SharedFile::posix ? -1 : create_memory_file(name);
  const int error = errno;
  if (descriptor < 0) descriptor = create_posix_file(name);
  if (descriptor >= 0) return descriptor;
  if (kind == SharedFile::posix)
    throw std::system_error(errno, std::generic_category(), "shm_open");
  throw std::system_error(error, std::generic_category(), "memfd_create, and shm_open");
}

bool take_memory([[maybe_unused]] int descriptor, [[maybe_unused]] std::size_t offset,
                 [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
  // In pieces, for a signal undoes what the call has done so far, and may come every millisecond.
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  for (std::size_t done = 0; done < bytes; done += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    while (fallocate(descriptor, 0, static_cast<off_t>(offset + done), static_cast<off_t>(piece)) !=
           0) {
      if (errno != EINTR) return false;
    }
  }
#endif
  return true;
}

FileIdentity FileIdentity::of(int descriptor) noexcept {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

}  // namespace pinfeed::runtime
