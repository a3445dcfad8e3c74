#include "cuda/jagged.h"
#include "cuda/jagged_plan.h"
#include "cuda/launch.cuh"

namespace pinfeed::cuda {

cudaError_t pad_jagged(const kernels::PadJagged& pad, cudaStream_t stream) {
  return launch(work_of(pad), stream);
}

cudaError_t unpad_to_jagged(const kernels::UnpadToJagged& unpad, cudaStream_t stream) {
  return launch(work_of(unpad), stream);
}

}  // namespace pinfeed::cuda
