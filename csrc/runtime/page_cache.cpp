#include "runtime/page_cache.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace pinfeed::runtime {

ssize_t read_cached([[maybe_unused]] int fd, [[maybe_unused]] const iovec* parts,
                    [[maybe_unused]] int count, [[maybe_unused]] std::int64_t offset) noexcept {
#if defined(RWF_NOWAIT)
  return preadv2(fd, parts, count, offset, RWF_NOWAIT);
#else
  errno = EOPNOTSUPP;
  return -1;
#endif
}

bool cached_at(int fd, std::int64_t offset) noexcept {
  std::byte byte;
  const iovec part{&byte, 1};
  return read_cached(fd, &part, 1, offset) >= 0 || errno == EOPNOTSUPP;
}

void request(int fd, std::int64_t offset, std::size_t bytes) noexcept {
#if defined(__APPLE__)
  radvisory advice{static_cast<off_t>(offset), static_cast<int>(bytes)};
  fcntl(fd, F_RDADVISE, &advice);
#else
  // The system may cut requests longer than its own reading ahead short.
  constexpr std::size_t kMostBytes = std::size_t{128} << 10;
  for (std::size_t done = 0; done < bytes; done += kMostBytes) {
    posix_fadvise(fd, offset + static_cast<std::int64_t>(done),
                  static_cast<off_t>(std::min(kMostBytes, bytes - done)), POSIX_FADV_WILLNEED);
  }
#endif
}

}  // namespace pinfeed::runtime
