// torch.ops.pinfeed.normalize_images: what both kinds of device have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/tensors.h"
#include "kernels/image_tensor.h"

namespace pinfeed::torch_ops {

using kernels::ImageTensor;

using Constants = std::optional<std::vector<double>>;  // one for all channels or one for each

// A checked call, and what the batch points into. Numbers inside `indices` and `sizes` are checked
// on the CPU only: elsewhere that would mean to wait.
struct NormalizeCall {
  Tensor images;
  std::optional<Tensor> indices = {};
  std::optional<Tensor> sizes = {};
  std::vector<float> scale = {}, bias = {};
  Tensor out;
  std::int64_t bytes = 0;  // of `out`
  ImageTensor batch = {};
};

// Checks the arguments, as torch hands them over, then makes the output, or takes `out`. Writes
// nothing.
NormalizeCall check_images(const Tensor& images, const Constants& mean, const Constants& std,
                           double scale, const std::string& input, const std::string& output,
                           std::optional<ScalarType> dtype, bool channels_last,
                           const std::optional<Tensor>& indices, const std::optional<Tensor>& sizes,
                           std::optional<std::int64_t> height, std::optional<std::int64_t> width,
                           std::optional<double> pad_value, const Tensor* out);

// The op and its overload `out`, for what writes the batches of a kind of device; that gets empty
// ones, too, for the numbers inside `indices` and `sizes` are checked there.
template <void (*write)(const NormalizeCall&)>
Tensor normalize_images(const Tensor& images, const Constants& mean, const Constants& std,
                        double scale, const std::string& input, const std::string& output,
                        std::optional<ScalarType> dtype, bool channels_last,
                        const std::optional<Tensor>& indices, const std::optional<Tensor>& sizes,
                        std::optional<std::int64_t> height, std::optional<std::int64_t> width,
                        std::optional<double> pad_value) {
  const NormalizeCall call =
      check_images(images, mean, std, scale, input, output, dtype, channels_last, indices, sizes,
                   height, width, pad_value, nullptr);
  write(call);
  return call.out;
}

template <void (*write)(const NormalizeCall&)>
void normalize_images_out(const Tensor& images, const Constants& mean, const Constants& std,
                          double scale, const std::string& input, const std::string& output,
                          std::optional<ScalarType> dtype, const std::optional<Tensor>& indices,
                          const std::optional<Tensor>& sizes, std::optional<std::int64_t> height,
                          std::optional<std::int64_t> width, std::optional<double> pad_value,
                          const Tensor& out) {
  write(check_images(images, mean, std, scale, input, output, dtype, false, indices, sizes, height,
                     width, pad_value, &out));
}

}  // namespace pinfeed::torch_ops
