// NHWC to NCHW and back for items of any type, on a device.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/permutation.h"

namespace pinfeed::cuda {

// Launches on `stream` and on the device that is current; nothing waits, nothing is allocated.
// cudaErrorInvalidValue for a negative size, a missing pointer, an item size that is not listed, or
// an item that is not aligned; then, and without an item to write, nothing was launched.
cudaError_t permute(const Permutation& permutation, cudaStream_t stream);

}  // namespace pinfeed::cuda
