// The library's operations on a device.
//
// Each is one kernel, launched on the caller's stream and the current device. Nothing waits,
// allocates or copies to the device, so a launch can be captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/pixels.h"
#include "kernels/jagged.h"

namespace pinfeed::cuda {

// Returns cudaSuccess if the current device can run the kernels: its driver is new enough, and
// there is code for it. Launches nothing.
cudaError_t check_current_device();

// Images: uint8 in, normalized and permuted out:
//
//   out[i, y, x, c] = round_to_type(fma(float(in[i, y, x, c]), scale[c], bias[c]))
//
// with the bits of kernels/image.h, provided that scale and bias are finite. uint8 output copies
// the byte: a permutation.
//
// The batch has items, and at most kMostChannels channels if it has constants. Sizes out of range
// are clamped. An index out of range stops the kernel, and every later call of the process fails
// (cudaErrorLaunchFailure), as in torch's own gathers.
cudaError_t normalize_images(const ImageTensor& batch, cudaStream_t stream);

// Pads jagged batches, and unpads them. Offsets are in device memory and unchecked: offsets outside
// [0, total] are clamped, and a sample that would end before it begins is empty. If offsets don't
// ascend, it is unspecified to which sample an unpadded row belongs, and nothing else.
cudaError_t pad_jagged(const kernels::PadJagged& pad, cudaStream_t stream);
cudaError_t unpad_to_jagged(const kernels::UnpadToJagged& unpad, cudaStream_t stream);

}  // namespace pinfeed::cuda
