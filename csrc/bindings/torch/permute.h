// torch.ops.pinfeed.permute: what both kinds of device have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bindings/torch/tensors.h"
#include "kernels/image.h"

namespace pinfeed::torch_ops {

using kernels::ImageLayout;

// A checked copy of `images` with its axes in another order.
struct Permutation {
  Tensor images;
  Shape shape = {};    // of the output
  Shape strides = {};  // of `images` along the output's axes, in bytes
  std::size_t item_size = 1;
  // If it is between NHWC and NCHW, whatever the letters: how the output lies in memory.
  std::optional<ImageLayout> layout = {};
  Tensor out;
  std::int64_t bytes = 0;
};

// Checks everything, then makes the output, or takes `out`. Writes nothing. `input` and `output`
// have a letter for each axis.
Permutation check_permutation(const Tensor& images, const std::string& input,
                              const std::string& output, DeviceKind kind, const Tensor* out);

template <DeviceKind kind, void (*write)(const Permutation&)>
Tensor permute(const Tensor& images, const std::string& input, const std::string& output) {
  const Permutation permutation = check_permutation(images, input, output, kind, nullptr);
  if (permutation.bytes > 0) write(permutation);
  return permutation.out;
}

template <DeviceKind kind, void (*write)(const Permutation&)>
void permute_out(const Tensor& images, const std::string& input, const std::string& output,
                 const Tensor& out) {
  const Permutation permutation = check_permutation(images, input, output, kind, &out);
  if (permutation.bytes > 0) write(permutation);
}

}  // namespace pinfeed::torch_ops
