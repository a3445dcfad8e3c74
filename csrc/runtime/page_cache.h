// The system's cache of files: what it has, and what it is asked to get.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace pinfeed::runtime {

// preadv() that waits for no disk. Negative if the cache has nothing there; errno is EOPNOTSUPP if
// the system, or the file system, can't tell.
ssize_t read_cached(int fd, const iovec* parts, int count, std::int64_t offset) noexcept;

// Whether the cache has the byte at `offset`; if not, the system reads its page. True where nobody
// can tell.
bool cached_at(int fd, std::int64_t offset) noexcept;

// Asks for bytes that will be read soon; waits for nothing.
void request(int fd, std::int64_t offset, std::size_t bytes) noexcept;

}  // namespace pinfeed::runtime
