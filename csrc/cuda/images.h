// Images on a device: uint8 in, normalized and permuted out, in one kernel.
//
//   out[i, y, x, c] = round_to_type(fma(float(in[i, y, x, c]), scale[c], bias[c]))
//
// with the bits of kernels/image.h, provided that scale and bias are finite. uint8 output copies
// the byte and ignores both: a permutation.
//
// Launches on the caller's stream and on the device that is current. Nothing waits, nothing is
// allocated, nothing is copied to the device: the launch can be captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/image_batch.h"

namespace pinfeed::cuda {

// cudaErrorInvalidValue if the batch contradicts itself: a negative count or size, a pointer that
// is missing, more constants in host memory than kInlineChannels. Then nothing was launched.
// Without an item to write nothing is launched either, and the result is cudaSuccess.
cudaError_t normalize_images(const ImageBatch& batch, cudaStream_t stream);

}  // namespace pinfeed::cuda
