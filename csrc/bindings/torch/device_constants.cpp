#include "bindings/torch/device_constants.h"

#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>

#include "bindings/torch/cuda_launch.h"

namespace pinfeed::torch_ops {
namespace {

struct Kept {
  std::int32_t device;
  std::vector<float> values;  // scale, then bias
  const float* on_device;
};

// Returns when the device has the bytes. From pageable memory, cudaMemcpy alone may return while
// they are still on their way, in the legacy stream, for which torch's other streams don't wait.
cudaError_t copy_and_wait(void* on_device, const void* values, std::size_t bytes) {
  const cudaError_t error = cudaMemcpy(on_device, values, bytes, cudaMemcpyHostToDevice);
  return error == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : error;
}

// Memory of CUDA's own, for torch's may be that of a graph, and be another tensor's in the next
// replay.
const float* upload(const std::vector<float>& values) {
  const std::size_t bytes = values.size() * sizeof(float);
  void* on_device = nullptr;
  check_launch(cudaMalloc(&on_device, bytes), "normalize_images");
  const cudaError_t error = copy_and_wait(on_device, values.data(), bytes);
  if (error != cudaSuccess) cudaFree(on_device);
  check_launch(error, "normalize_images");
  return static_cast<const float*>(on_device);
}

}  // namespace

cuda::ChannelConstants device_constants(const std::vector<float>& scale,
                                        const std::vector<float>& bias, const Tensor& first) {
  // Never destroyed: when the process ends, CUDA may have gone before.
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::list<Kept>;
  std::vector<float> values = scale;
  values.insert(values.end(), bias.begin(), bias.end());
  const std::int32_t device = first.get_device_index();

  const std::lock_guard lock(mutex);
  auto found = std::ranges::find_if(kept, [&](const Kept& constants) {
    return constants.device == device && constants.values == values;
  });
  if (found == kept.end()) {
    const float* const on_device = upload(values);
    found = kept.insert(kept.end(), {device, std::move(values), on_device});
  }
  return {.scale = found->on_device, .bias = found->on_device + scale.size(), .on_device = true};
}

}  // namespace pinfeed::torch_ops
