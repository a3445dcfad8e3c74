#include "bindings/torch/cuda_launch.h"

#include <dlfcn.h>

#include "cuda/current_device.h"

namespace pinfeed::torch_ops {
namespace {

using GetStream = AOTITorchError (*)(std::int32_t device_index, void** stream);

// Part of torch's C shim like all else, but in a library that the torch of a build need not have.
GetStream find_get_stream() {
  constexpr char kName[] = "aoti_torch_get_current_cuda_stream";
  void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  void* const symbol = dlsym(library != nullptr ? library : RTLD_DEFAULT, kName);
  if (symbol == nullptr) {
    throw std::runtime_error(text("pinfeed: torch's CUDA library has no ", kName));
  }
  return reinterpret_cast<GetStream>(symbol);
}

cudaStream_t current_stream(std::int32_t device_index) {
  static const GetStream get_stream = find_get_stream();
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(get_stream(device_index, &stream));
  return static_cast<cudaStream_t>(stream);
}

const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return "; the driver is older than the CUDA that pinfeed was built with: update it, or build "
             "pinfeed with an older nvcc";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; pinfeed was built for other GPUs: build it on this machine, or with "
             "CMAKE_CUDA_ARCHITECTURES=native";
    default:
      return "";
  }
}

// What CUDA says, and what can be done about it.
std::string error_text(cudaError_t error) {
  return text("CUDA says ", cudaGetErrorString(error), advice(error));
}

}  // namespace

Launch::Launch(const Tensor& tensor) {
  const std::int32_t device = tensor.get_device_index();
  if (torch::stable::accelerator::getCurrentDeviceIndex() != device) guard_.emplace(device);
  stream_ = current_stream(device);
}

void check_launch(cudaError_t error, const char* function) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next call would report it again
  throw std::runtime_error(text(function, ": ", error_text(error)));
}

}  // namespace pinfeed::torch_ops

// Asked by Python before the kernels are chosen over torch's own operations: why the current device
// can't run them, and what to do; null if it can. The text lives until the thread asks again.
extern "C" __attribute__((visibility("default"))) const char* pinfeed_cuda_problem() {
  const cudaError_t error = pinfeed::cuda::check_current_device();
  if (error == cudaSuccess) return nullptr;
  thread_local std::string text;
  text = pinfeed::torch_ops::error_text(error);
  return text.c_str();
}
