// Features that the CPU and the operating system support.
#pragma once

#include <cstddef>

namespace pinfeed::dispatch {

bool cpu_has_avx2();    // AVX2, FMA and F16C
bool cpu_has_avx512();  // also AVX-512 F and BW

// Whether an output is so large that it would be evicted before it is read; then stores bypass the
// cache.
bool worth_streaming(std::size_t bytes);

// The same for converted pixels, which some CPUs stream more slowly than they store them.
bool worth_streaming_pixels(std::size_t bytes);

}  // namespace pinfeed::dispatch
