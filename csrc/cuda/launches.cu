#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "cuda/image_plan.h"
#include "cuda/jagged_plan.h"
#include "cuda/launches.h"

namespace pinfeed::cuda {
namespace {

// Compiled for the same GPUs as every kernel.
__global__ void do_nothing() {}

// A Work has blocks(), kThreads, and run(), the work of one thread of a block. Blocks beyond the
// maximum of a launch are done in further rounds.
template <class Work>
__global__ void __launch_bounds__(Work::kThreads)
    run_work(const __grid_constant__ Work work, const std::int64_t blocks) {
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    work.run(block, static_cast<int>(threadIdx.x));
  }
}

template <class Work>
cudaError_t launch(const Work& work, cudaStream_t stream) {
  const std::int64_t blocks = work.blocks();
  if (blocks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(blocks < INT_MAX ? blocks : INT_MAX);
  run_work<<<grid, Work::kThreads, 0, stream>>>(work, blocks);
  return cudaGetLastError();
}

template <PixelType kType>
cudaError_t launch_images(const ImageTensor& batch, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  visit_image_work<kType>(batch, [&](const auto& work) { error = launch(work, stream); });
  return error;
}

}  // namespace

cudaError_t check_current_device() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, do_nothing);
  if (error != cudaSuccess) cudaGetLastError();  // or the next call would report it again
  return error;
}

cudaError_t normalize_images(const ImageTensor& batch, cudaStream_t stream) {
  switch (batch.type) {
    case PixelType::float32:
      return launch_images<PixelType::float32>(batch, stream);
    case PixelType::float16:
      return launch_images<PixelType::float16>(batch, stream);
    case PixelType::bfloat16:
      return launch_images<PixelType::bfloat16>(batch, stream);
    case PixelType::uint8:
      return launch_images<PixelType::uint8>(batch, stream);
    default:  // masks are created on the host
      return cudaErrorInvalidValue;
  }
}

cudaError_t pad_jagged(const kernels::PadJagged& pad, cudaStream_t stream) {
  return launch(work_of(pad), stream);
}

cudaError_t unpad_to_jagged(const kernels::UnpadToJagged& unpad, cudaStream_t stream) {
  return launch(work_of(unpad), stream);
}

}  // namespace pinfeed::cuda
