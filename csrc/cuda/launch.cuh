// From the work of a thread to a launch.
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

namespace pinfeed::cuda {

// Work has blocks(), kThreads, and what each thread of a block does, run(). More blocks than a
// launch can have are worked off in rounds.
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

}  // namespace pinfeed::cuda
