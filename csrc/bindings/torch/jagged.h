// torch.ops.pinfeed.pad_jagged, pad_jagged_with_mask and unpad_to_jagged: what both kinds of device
// have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "bindings/torch/tensors.h"

namespace pinfeed::torch_ops {

// What a jagged and a padded batch have in common, checked. Offsets are checked on the CPU only:
// elsewhere that would mean to wait.
struct JaggedShape {
  Tensor offsets;           // int64, contiguous, (count + 1,)
  std::int64_t count = 0;   // samples
  std::int64_t total = 0;   // rows of the jagged values
  std::int64_t length = 0;  // rows of each box of the padded batch
  std::int64_t most = 0;    // rows of a sample that go into its box; longer ones are cut
  std::int64_t row_bytes = 0;
  bool left = false;  // data stands at the end of its box, and is cut at its beginning
  bool time_major = false;
  Item fill = {};
};

// Every tensor is contiguous.
struct PadBatch {
  JaggedShape shape;
  Tensor values;  // (total, ...)
  Tensor out;     // (count, length, ...) or (length, count, ...)
  std::int64_t bytes = 0;
  std::optional<Tensor> lengths = {};  // int64 (count,)
  std::optional<Tensor> mask = {};     // bool (count, length) or (length, count)
};

struct UnpadBatch {
  JaggedShape shape;
  Tensor padded;
  Tensor out;  // (total, ...): what is in no box, or in no sample, becomes `fill`, which is 0
  std::int64_t bytes = 0;
};

struct PadArguments {
  const Tensor& values;
  const Tensor& offsets;
  std::int64_t length;
  std::optional<std::int64_t> max_length;
  std::optional<double> value;
  const std::string& side;
  bool time_major;
};

struct UnpadArguments {
  const Tensor& padded;
  const Tensor& offsets;
  std::int64_t total;
  std::optional<std::int64_t> max_length;
  const std::string& side;
  bool time_major;
};

// Outputs that the caller gave; lengths and mask only both.
struct PadOutputs {
  const Tensor* values = nullptr;
  const Tensor* lengths = nullptr;
  const Tensor* mask = nullptr;
};

// Check everything, then make the outputs, or take those given. Write nothing.
PadBatch check_pad(const PadArguments& arguments, bool with_mask, const std::string& function,
                   DeviceKind kind, const PadOutputs& outputs);
UnpadBatch check_unpad(const UnpadArguments& arguments, DeviceKind kind, const Tensor* out);

// The ops and their overloads `out`, for a kind of device and what writes its batches; that gets
// empty ones, too, for the numbers inside `offsets` are checked there.
template <DeviceKind kind, void (*write)(const PadBatch&)>
Tensor pad_jagged(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side, bool time_major) {
  const PadBatch batch = check_pad({values, offsets, length, max_length, value, side, time_major},
                                   false, "pad_jagged", kind, {});
  write(batch);
  return batch.out;
}

template <DeviceKind kind, void (*write)(const PadBatch&)>
void pad_jagged_out(const Tensor& values, const Tensor& offsets, std::int64_t length,
                    std::optional<std::int64_t> max_length, std::optional<double> value,
                    const std::string& side, bool time_major, const Tensor& out) {
  write(check_pad({values, offsets, length, max_length, value, side, time_major}, false,
                  "pad_jagged", kind, {.values = &out}));
}

template <DeviceKind kind, void (*write)(const PadBatch&)>
std::tuple<Tensor, Tensor, Tensor> pad_jagged_with_mask(const Tensor& values, const Tensor& offsets,
                                                        std::int64_t length,
                                                        std::optional<std::int64_t> max_length,
                                                        std::optional<double> value,
                                                        const std::string& side, bool time_major) {
  const PadBatch batch = check_pad({values, offsets, length, max_length, value, side, time_major},
                                   true, "pad_jagged_with_mask", kind, {});
  write(batch);
  return {batch.out, *batch.lengths, *batch.mask};
}

template <DeviceKind kind, void (*write)(const PadBatch&)>
void pad_jagged_with_mask_out(const Tensor& values, const Tensor& offsets, std::int64_t length,
                              std::optional<std::int64_t> max_length, std::optional<double> value,
                              const std::string& side, bool time_major, const Tensor& out,
                              const Tensor& lengths, const Tensor& mask) {
  write(check_pad({values, offsets, length, max_length, value, side, time_major}, true,
                  "pad_jagged_with_mask", kind,
                  {.values = &out, .lengths = &lengths, .mask = &mask}));
}

template <DeviceKind kind, void (*write)(const UnpadBatch&)>
Tensor unpad_to_jagged(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                       std::optional<std::int64_t> max_length, const std::string& side,
                       bool time_major) {
  const UnpadBatch batch =
      check_unpad({padded, offsets, total, max_length, side, time_major}, kind, nullptr);
  write(batch);
  return batch.out;
}

template <DeviceKind kind, void (*write)(const UnpadBatch&)>
void unpad_to_jagged_out(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                         std::optional<std::int64_t> max_length, const std::string& side,
                         bool time_major, const Tensor& out) {
  const UnpadBatch batch =
      check_unpad({padded, offsets, total, max_length, side, time_major}, kind, &out);
  write(batch);
}

}  // namespace pinfeed::torch_ops
