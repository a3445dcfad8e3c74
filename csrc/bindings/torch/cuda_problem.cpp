// Asked by Python before the library's kernels are chosen over torch's own operations.
#include "bindings/torch/cuda_launch.h"
#include "cuda/current_device.h"

// Why the current device can't run the kernels, and what to do; null if it can. The text lives
// until the thread asks again.
extern "C" __attribute__((visibility("default"))) const char* pinfeed_cuda_problem() {
  const cudaError_t error = pinfeed::cuda::check_current_device();
  if (error == cudaSuccess) return nullptr;
  thread_local std::string text;
  text = pinfeed::torch_ops::error_text(error);
  return text.c_str();
}
