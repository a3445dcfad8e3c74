// Copies of bytes that can bypass the cache, which the C library doesn't offer.
#pragma once

#include <cstddef>

namespace pinfeed::kernels {

// Copies `count` bytes between regions that don't overlap. `streaming`: the core won't read the
// output again, so large copies bypass the cache; stores_done() must follow before another thread
// reads it.
void copy_bytes(void* out, const void* in, std::size_t count, bool streaming);

// Bytes of a cache line.
inline constexpr std::size_t kLine = 64;

// From this size on, a streaming copy interleaves several pages.
inline constexpr std::size_t kPagesInTurn = std::size_t{16} << 10;

// Whether memcpy of `count` bytes avoids reading the output, like streaming stores.
bool memcpy_streams(std::size_t count);

// Writes the kLine bytes at `line` to `lines` consecutive lines, bypassing the cache. `out` is
// aligned to a line.
void repeat_line(void* out, const void* line, std::size_t lines);

// Copies `lines` lines, bypassing the cache. Both sides are aligned to a line.
void copy_lines(void* out, const void* in, std::size_t lines);

// Orders streaming stores before later stores of the thread.
void stores_done();

}  // namespace pinfeed::kernels
