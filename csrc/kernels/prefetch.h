// Asking for memory that will be read soon.
#pragma once

namespace pinfeed::kernels {

// Asks for the cache line at `address`, which need not be there.
inline void prefetch_line(const void* address) {
  __builtin_prefetch(address);
  // To GCC a prefetch is no effect: it drops calls of a function that does nothing else.
  asm volatile("");
}

// The same for a line that will be written.
inline void prefetch_line_to_write(const void* address) {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

}  // namespace pinfeed::kernels
