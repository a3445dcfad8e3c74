// Images on a device: uint8 in, normalized and permuted out, in one kernel.
//
//   out[i, y, x, c] = round_to_type(fma(float(in[i, y, x, c]), scale[c], bias[c]))
//
// with the bits of kernels/image.h, provided that scale and bias are finite. uint8 output copies
// the byte: a permutation.
//
// Launches on the caller's stream and on the device that is current. Nothing waits, nothing is
// allocated, nothing is copied to the device: the launch can be captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/pixels.h"

namespace pinfeed::cuda {

// The batch has items, and at most kMostChannels channels if it has constants. Sizes out of range
// are taken for the nearest in range. An index out of range stops the kernel, and every later call
// of the process fails (cudaErrorLaunchFailure), as after one in torch's own gathers.
cudaError_t normalize_images(const ImageTensor& batch, cudaStream_t stream);

}  // namespace pinfeed::cuda
