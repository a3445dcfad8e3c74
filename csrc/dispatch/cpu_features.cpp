#include "dispatch/cpu_features.h"

#include <unistd.h>

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pinfeed::dispatch {

#if defined(__x86_64__)

namespace {

// Some versions of clang don't know this one by name.
bool cpu_has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

// The compiler's own detection also checks that the operating system saves the registers (XGETBV).
bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

static bool streams_pixels() { return !cpu_has_avx512() || !__builtin_cpu_is("intel"); }

#else

bool cpu_has_avx2() { return false; }
bool cpu_has_avx512() { return false; }
static bool streams_pixels() { return false; }

#endif

bool worth_streaming(std::size_t bytes) {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  static const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // shared by all cores
#else
  constexpr long cache = 0;
#endif
  // Half of the cache, because the input is cached too; clamped, because virtual machines report
  // caches that they only share (384 MB for 32 MB, seen once).
  return bytes >= static_cast<std::size_t>(std::clamp(cache / 2, 4L << 20, 16L << 20));
}

// Not on Intel's servers: memory is far from their cores, and a core waits for few streaming stores
// at a time. 256 images took 24 ms with them and 18 ms without, on one core and on both of a
// Cascade Lake. Copies, which compute nothing meanwhile, were equally fast. Nor on AArch64, whose
// cores detect long runs of whole lines.
bool worth_streaming_pixels(std::size_t bytes) {
  static const bool streams = streams_pixels();
  return streams && worth_streaming(bytes);
}

}  // namespace pinfeed::dispatch
