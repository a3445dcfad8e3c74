// torch.ops.pinfeed.normalize_images: the part common to all devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/tensors.h"
#include "kernels/image_tensor.h"

namespace pinfeed::torch_ops {

using kernels::ImageTensor;

using Constants = std::optional<std::vector<double>>;  // one for all channels, or one per channel

// A checked call, and the tensors that the batch points into.
struct NormalizeCall {
  Tensor images;
  std::vector<float> scale = {}, bias = {};
  Tensor out;
  std::int64_t bytes = 0;  // of `out`
  ImageTensor batch = {};
};

// Checks torch's arguments, then allocates the output. Writes nothing.
NormalizeCall check_images(const Tensor& images, const Constants& mean, const Constants& std,
                           double scale, const std::string& input, const std::string& output,
                           std::optional<ScalarType> dtype, bool channels_last);

// The op, given the function that writes batches on a kind of device.
template <void (*write)(const NormalizeCall&)>
Tensor normalize_images(const Tensor& images, const Constants& mean, const Constants& std,
                        double scale, const std::string& input, const std::string& output,
                        std::optional<ScalarType> dtype, bool channels_last) {
  const NormalizeCall call =
      check_images(images, mean, std, scale, input, output, dtype, channels_last);
  write(call);
  return call.out;
}

}  // namespace pinfeed::torch_ops
