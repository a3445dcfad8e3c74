// What the CPU and the operating system let this process run.
#pragma once

#include <cstddef>

namespace pinfeed::dispatch {

bool cpu_has_avx2();    // AVX2, FMA and F16C
bool cpu_has_avx512();  // the above, AVX-512 F and BW

// Whether an output is so large that it would be evicted before anyone reads it; then it is written
// around the cache.
bool worth_streaming(std::size_t bytes);

}  // namespace pinfeed::dispatch
