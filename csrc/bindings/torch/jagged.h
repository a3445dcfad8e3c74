// torch.ops.pinfeed.pad_jagged and unpad_to_jagged: what both kinds of device have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bindings/torch/tensors.h"

namespace pinfeed::torch_ops {

// Checked calls, and what the batches point into: contiguous tensors. Offsets are checked on the
// CPU only: elsewhere that would mean to wait.
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
  Tensor out;  // (total, ...): what is in no box, or in no sample, becomes 0
  std::int64_t bytes = 0;
  kernels::UnpadToJagged batch = {};
};

// Check the arguments, as torch hands them over, then make the output. Write nothing.
PadCall check_pad(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side);
UnpadCall check_unpad(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                      std::optional<std::int64_t> max_length, const std::string& side);

// The ops, for what writes the batches of a kind of device; that gets empty ones, too, for the
// numbers inside `offsets` are checked there.
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
