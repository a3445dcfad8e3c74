// Jagged batches to padded ones and back, on a device.
//
// Launches on the caller's stream and on the device that is current, once for all outputs. Nothing
// waits, nothing is allocated, nothing is copied to the device: the launch can be captured into a
// CUDA graph.
//
// Offsets lie on the device, where nobody has checked them: those outside [0, total] are taken for
// the nearest inside, and a sample that would end before it begins is empty. If offsets don't
// ascend, it is left open which sample an unpadded row is of, no more.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/jagged.h"

namespace pinfeed::cuda {

cudaError_t pad_jagged(const kernels::PadJagged& pad, cudaStream_t stream);
cudaError_t unpad_to_jagged(const kernels::UnpadToJagged& unpad, cudaStream_t stream);

}  // namespace pinfeed::cuda
