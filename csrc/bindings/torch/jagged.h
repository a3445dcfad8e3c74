// torch.ops.pinfeed.pad_jagged, pad_jagged_with_mask and unpad_to_jagged: what both kinds of device
// have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "bindings/torch/tensors.h"

namespace pinfeed::torch_ops {

// Checked calls, and what the batches point into: contiguous tensors. Offsets are checked on the
// CPU only: elsewhere that would mean to wait.
struct PadCall {
  Tensor values;                       // (total, ...)
  Tensor offsets;                      // int64 (count + 1,)
  Tensor out;                          // (count, length, ...)
  std::optional<Tensor> lengths = {};  // int64 (count,)
  std::optional<Tensor> mask = {};     // bool (count, length)
  std::int64_t bytes = 0;              // of `out`
  kernels::PadJagged batch = {};
};

struct UnpadCall {
  Tensor padded;
  Tensor offsets;
  Tensor out;  // (total, ...): what is in no box, or in no sample, becomes 0
  std::int64_t bytes = 0;
  kernels::UnpadToJagged batch = {};
};

// Outputs that the caller gave; lengths and mask only both.
struct PadOutputs {
  const Tensor* values = nullptr;
  const Tensor* lengths = nullptr;
  const Tensor* mask = nullptr;
};

// Check the arguments, as torch hands them over, then make the outputs, or take those given. Write
// nothing.
PadCall check_pad(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side, bool with_mask, const std::string& function,
                  const PadOutputs& outputs);
UnpadCall check_unpad(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                      std::optional<std::int64_t> max_length, const std::string& side,
                      const Tensor* out);

// The ops and their overloads `out`, for what writes the batches of a kind of device; that gets
// empty ones, too, for the numbers inside `offsets` are checked there.
template <void (*write)(const PadCall&)>
Tensor pad_jagged(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side) {
  const PadCall call =
      check_pad(values, offsets, length, max_length, value, side, false, "pad_jagged", {});
  write(call);
  return call.out;
}

template <void (*write)(const PadCall&)>
void pad_jagged_out(const Tensor& values, const Tensor& offsets, std::int64_t length,
                    std::optional<std::int64_t> max_length, std::optional<double> value,
                    const std::string& side, const Tensor& out) {
  write(check_pad(values, offsets, length, max_length, value, side, false, "pad_jagged",
                  {.values = &out}));
}

template <void (*write)(const PadCall&)>
std::tuple<Tensor, Tensor, Tensor> pad_jagged_with_mask(const Tensor& values, const Tensor& offsets,
                                                        std::int64_t length,
                                                        std::optional<std::int64_t> max_length,
                                                        std::optional<double> value,
                                                        const std::string& side) {
  const PadCall call =
      check_pad(values, offsets, length, max_length, value, side, true, "pad_jagged_with_mask", {});
  write(call);
  return {call.out, *call.lengths, *call.mask};
}

template <void (*write)(const PadCall&)>
void pad_jagged_with_mask_out(const Tensor& values, const Tensor& offsets, std::int64_t length,
                              std::optional<std::int64_t> max_length, std::optional<double> value,
                              const std::string& side, const Tensor& out, const Tensor& lengths,
                              const Tensor& mask) {
  write(check_pad(values, offsets, length, max_length, value, side, true, "pad_jagged_with_mask",
                  {.values = &out, .lengths = &lengths, .mask = &mask}));
}

template <void (*write)(const UnpadCall&)>
Tensor unpad_to_jagged(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                       std::optional<std::int64_t> max_length, const std::string& side) {
  const UnpadCall call = check_unpad(padded, offsets, total, max_length, side, nullptr);
  write(call);
  return call.out;
}

template <void (*write)(const UnpadCall&)>
void unpad_to_jagged_out(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                         std::optional<std::int64_t> max_length, const std::string& side,
                         const Tensor& out) {
  write(check_unpad(padded, offsets, total, max_length, side, &out));
}

}  // namespace pinfeed::torch_ops
