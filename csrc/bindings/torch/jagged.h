// torch.ops.pinfeed.pad_jagged and unpad_to_jagged: the part common to all devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bindings/torch/tensors.h"

namespace pinfeed::torch_ops {

// Checked calls, and the contiguous tensors that the batches point into. Offsets are checked on the
// CPU only, because on a device that requires a synchronization.
struct PadCall {
  Tensor values;           // (total, ...)
  Tensor offsets;          // int64 (count + 1,)
  Tensor out;              // (count, length, ...)
  std::int64_t bytes = 0;  // of `out`
  kernels::PadJagged batch = {};
};

struct UnpadCall {
  Tensor padded;
  Tensor offsets;
  Tensor out;  // (total, ...); zeros for rows that were truncated or belong to no sample
  std::int64_t bytes = 0;
  kernels::UnpadToJagged batch = {};
};

// Check torch's arguments, then allocate the output. Write nothing.
PadCall check_pad(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side);
UnpadCall check_unpad(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                      std::optional<std::int64_t> max_length, const std::string& side);

// The ops, given the function that writes batches on a kind of device. It is called for empty
// batches too, because it checks the values of `offsets`.
template <void (*write)(const PadCall&)>
Tensor pad_jagged(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side) {
  const PadCall call = check_pad(values, offsets, length, max_length, value, side);
  write(call);
  return call.out;
}

template <void (*write)(const UnpadCall&)>
Tensor unpad_to_jagged(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                       std::optional<std::int64_t> max_length, const std::string& side) {
  const UnpadCall call = check_unpad(padded, offsets, total, max_length, side);
  write(call);
  return call.out;
}

}  // namespace pinfeed::torch_ops
