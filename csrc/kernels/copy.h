// Plain copies of bytes, with a choice the C library doesn't give: write around the cache.
#pragma once

#include <cstddef>

namespace pinfeed::kernels {

// Copies `count` bytes between regions that don't overlap. `streaming`: the core won't read the
// output again, so large copies bypass the cache; stores_done() must follow before another thread
// reads it.
void copy_bytes(void* out, const void* in, std::size_t count, bool streaming);

// Bytes of a cache line.
inline constexpr std::size_t kLine = 64;

// From so many bytes on a streaming copy goes through several pages at once.
inline constexpr std::size_t kPagesInTurn = std::size_t{16} << 10;

// Whether memcpy of `count` bytes doesn't read the output either, which is what streaming is for.
bool memcpy_streams(std::size_t count);

// Writes the kLine bytes at `line` to `lines` lines in a row, around the cache. `out` begins a
// line.
void repeat_line(void* out, const void* line, std::size_t lines);

// Copies `lines` lines around the cache. Both sides begin one.
void copy_lines(void* out, const void* in, std::size_t lines);

// Orders streaming stores before whatever the thread does next.
void stores_done();

}  // namespace pinfeed::kernels
