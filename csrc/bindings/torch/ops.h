// The ops of torch.ops.pinfeed: the part common to all devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/tensors.h"
#include "kernels/image_tensor.h"
#include "kernels/jagged.h"

namespace pinfeed::torch_ops {

// Checked calls, and the tensors that the batches point into.
struct NormalizeCall {
  Tensor images;
  std::vector<float> scale = {}, bias = {};
  Tensor out;
  std::int64_t bytes = 0;  // of `out`
  kernels::ImageTensor batch = {};
};

// A copy of `images` with permuted axes.
struct PermuteCall {
  Tensor images;
  Shape order = {};    // for each axis of the output, the axis of `images`
  Shape shape = {};    // of the output
  Shape strides = {};  // of `images` along the output's axes, in items
  std::size_t item_size = 1;
  Tensor out;
  std::int64_t bytes = 0;
};

// Offsets are checked on the CPU only, because on a device that requires a synchronization.
template <class Batch>
struct JaggedCall {
  Tensor in;       // contiguous: (total, ...), or (count, length, ...) to unpad
  Tensor offsets;  // int64 (count + 1,)
  Tensor out;
  std::int64_t bytes = 0;
  Batch batch = {};
};
using PadCall = JaggedCall<kernels::PadJagged>;
// Writes zeros for rows that were truncated or belong to no sample.
using UnpadCall = JaggedCall<kernels::UnpadToJagged>;

using Constants = std::optional<std::vector<double>>;  // one for all channels, or one per channel

// Check torch's arguments, then allocate the output. Write nothing.
NormalizeCall check_images(const Tensor& images, const Constants& mean, const Constants& std,
                           double scale, const std::string& input, const std::string& output,
                           std::optional<ScalarType> dtype, bool channels_last);
// `input` and `output` have a letter per axis.
PermuteCall check_permute(const Tensor& images, const std::string& input,
                          const std::string& output);
PadCall check_pad(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side);
UnpadCall check_unpad(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                      std::optional<std::int64_t> max_length, const std::string& side);

// An op, made of its check and the function that writes batches on a kind of device, which is
// called for empty batches too.
template <auto check, auto write>
struct Op;

template <class Call, class... Args, Call (*check)(Args...), void (*write)(const Call&)>
struct Op<check, write> {
  static Tensor run(Args... args) {
    const Call call = check(args...);
    write(call);
    return call.out;
  }
};

}  // namespace pinfeed::torch_ops
