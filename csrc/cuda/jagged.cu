#include "cuda/jagged.h"
#include "cuda/jagged_plan.h"
#include "cuda/launch.cuh"

namespace pinfeed::cuda {

cudaError_t pad_jagged(const PadJagged& pad, cudaStream_t stream) {
  if (!is_valid(pad)) return cudaErrorInvalidValue;
  cudaError_t error = cudaSuccess;
  visit_pad_work(pad, [&](const auto& work) { error = launch(work, stream); });
  return error;
}

cudaError_t unpad_to_jagged(const UnpadToJagged& unpad, cudaStream_t stream) {
  if (!is_valid(unpad)) return cudaErrorInvalidValue;
  cudaError_t error = cudaSuccess;
  visit_unpad_work(unpad, [&](const auto& work) { error = launch(work, stream); });
  return error;
}

}  // namespace pinfeed::cuda
