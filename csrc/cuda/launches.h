// What the library does on a device.
//
// Launches on the caller's stream and on the device that is current, one kernel each. Nothing
// waits, nothing is allocated, nothing is copied to the device: a launch can be captured into a
// CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/pixels.h"
#include "kernels/jagged.h"

namespace pinfeed::cuda {

// cudaSuccess if the current device can run the kernels: its driver is new enough, and there is
// code for it. Nothing is launched.
cudaError_t check_current_device();

// Images: uint8 in, normalized and permuted out:
//
//   out[i, y, x, c] = round_to_type(fma(float(in[i, y, x, c]), scale[c], bias[c]))
//
// with the bits of kernels/image.h, provided that scale and bias are finite. uint8 output copies
// the byte: a permutation.
//
// The batch has items, and at most kMostChannels channels if it has constants. Sizes out of range
// are taken for the nearest in range. An index out of range stops the kernel, and every later call
// of the process fails (cudaErrorLaunchFailure), as after one in torch's own gathers.
cudaError_t normalize_images(const ImageTensor& batch, cudaStream_t stream);

// Jagged batches to padded ones and back. Offsets lie on the device, where nobody has checked them:
// those outside [0, total] are taken for the nearest inside, and a sample that would end before it
// begins is empty. If offsets don't ascend, it is left open which sample an unpadded row is of, no
// more.
cudaError_t pad_jagged(const kernels::PadJagged& pad, cudaStream_t stream);
cudaError_t unpad_to_jagged(const kernels::UnpadToJagged& unpad, cudaStream_t stream);

}  // namespace pinfeed::cuda
