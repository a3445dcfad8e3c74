// What a launch on a CUDA device takes: the device made current, torch's current stream, errors.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "bindings/torch/tensors.h"

namespace pinfeed::torch_ops {

// Makes a tensor's device current for as long as it lives.
class Launch {
 public:
  explicit Launch(const Tensor& tensor);

  cudaStream_t stream() const { return stream_; }

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  cudaStream_t stream_;
};

// Throws std::runtime_error for what is no success, with what can be done about it.
void check_launch(cudaError_t error, const char* function);

}  // namespace pinfeed::torch_ops
