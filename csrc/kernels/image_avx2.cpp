// Image primitives for AVX2 + FMA + F16C.
#include "kernels/image_avx2.h"

namespace pinfeed::kernels {

constexpr ImageRuns kImageRunsAvx2 = make_image_runs<Avx2>();

}  // namespace pinfeed::kernels
