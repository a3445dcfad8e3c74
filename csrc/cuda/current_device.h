// Whether the kernels can run at all.
#pragma once

#include <cuda_runtime_api.h>

namespace pinfeed::cuda {

// cudaSuccess if the current device can run the kernels: its driver is new enough, and there is
// code for it. Nothing is launched.
cudaError_t check_current_device();

}  // namespace pinfeed::cuda
