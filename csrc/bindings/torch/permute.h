// torch.ops.pinfeed.permute: the part common to all devices.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/torch/tensors.h"

namespace pinfeed::torch_ops {

// A checked call: a copy of `images` with permuted axes.
struct PermuteCall {
  Tensor images;
  Shape order = {};    // for each axis of the output, the axis of `images`
  Shape shape = {};    // of the output
  Shape strides = {};  // of `images` along the output's axes, in items
  std::size_t item_size = 1;
  Tensor out;
  std::int64_t bytes = 0;
};

// Checks the arguments, then allocates the output. Writes nothing. `input` and `output` have a
// letter per axis.
PermuteCall check_permute(const Tensor& images, const std::string& input,
                          const std::string& output);

template <void (*write)(const PermuteCall&)>
Tensor permute(const Tensor& images, const std::string& input, const std::string& output) {
  const PermuteCall call = check_permute(images, input, output);
  if (call.bytes > 0) write(call);
  return call.out;
}

}  // namespace pinfeed::torch_ops
