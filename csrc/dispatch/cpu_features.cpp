#include "dispatch/cpu_features.h"

#include <unistd.h>

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pinfeed::dispatch {

#if defined(__x86_64__)

namespace {

// Not every clang knows this one by name.
bool cpu_has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

// The compiler's own detection asks the operating system too (XGETBV), so that registers it does
// not save are not used.
bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

#else

bool cpu_has_avx2() { return false; }
bool cpu_has_avx512() { return false; }

#endif

bool worth_streaming(std::size_t bytes) {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  static const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // all cores share it
#else
  constexpr long cache = 0;
#endif
  // Half of the cache, for the input wants a place there too; within bounds, because virtual
  // machines report caches that they have only a share of (384 MB for 32 MB, seen once).
  return bytes >= static_cast<std::size_t>(std::clamp(cache / 2, 4L << 20, 16L << 20));
}

}  // namespace pinfeed::dispatch
