// Jagged batches to padded ones and back, on a device; see jagged_batch.h for what they are.
//
// Launches on the caller's stream and on the device that is current, once for all outputs. Nothing
// waits, nothing is allocated, nothing is copied to the device: the launch can be captured into a
// CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/jagged_batch.h"

namespace pinfeed::cuda {

// Every byte of `out` is written. cudaErrorInvalidValue if the arguments contradict each other: a
// negative number, `most` beyond `length`, a pointer that is missing, row_bytes that are no
// multiple of the fill's size. Then nothing was launched. With nothing to write nothing is launched
// either, and the result is cudaSuccess.
cudaError_t pad_jagged(const PadJagged& pad, cudaStream_t stream);

// The inverse of pad_jagged. Every row of `out` is written: those that were cut, and those of no
// sample, become fill. Offsets that don't ascend leave open which sample a row is of, no more.
// Errors as for pad_jagged.
cudaError_t unpad_to_jagged(const UnpadToJagged& unpad, cudaStream_t stream);

}  // namespace pinfeed::cuda
