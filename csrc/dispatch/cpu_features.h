// What the CPU and the operating system let this process run.
#pragma once

namespace pinfeed::dispatch {

bool cpu_has_avx2();    // AVX2, FMA and F16C
bool cpu_has_avx512();  // the above, AVX-512 F and BW
bool cpu_has_neon();

}  // namespace pinfeed::dispatch
