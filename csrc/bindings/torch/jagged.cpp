#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "bindings/torch/ops.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::JaggedShape;

// The tensor, or a contiguous copy of it.
Tensor in_order(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

// Makes offsets contiguous.
JaggedShape check_keywords(std::int64_t length, std::optional<std::int64_t> max_length,
                           const std::string& side, const std::string& function,
                           const Tensor& first, Tensor& offsets) {
  if (offsets.dim() != 1 || offsets.numel() == 0 || offsets.scalar_type() != ScalarType::Long) {
    fail(function, ": offsets must be int64 with shape (B + 1,), got ",
         dtype_text(offsets.scalar_type()), " ", shape_text(offsets));
  }
  if (side != "right" && side != "left") {
    fail(function, ": side must be right or left, got ", side);
  }
  const std::int64_t max_rows = max_length.value_or(length);
  if (max_rows < 0) fail(function, ": max_length must not be negative, got ", max_rows);
  check_device(offsets, function + ": offsets", first);
  offsets = in_order(offsets);
  return {.offsets = static_cast<const std::int64_t*>(offsets.const_data_ptr()),
          .count = offsets.size(0) - 1,
          .length = length,
          .max_rows = std::min(max_rows, length),
          .left = side == "left",
          .fill = {}};
}

// Sets the input and the output, whose shape is `sizes` and then the sizes of a row. A row has the
// axes of the input from `first_axis` on.
template <class Batch>
void set_arrays(JaggedCall<Batch>& call, Shape sizes, std::int64_t first_axis, double value,
                const std::string& function, const char* name) {
  const ScalarType type = call.in.scalar_type();
  const std::size_t item = item_size(type, function + ": the dtype of " + name);
  Shape row;
  for (std::int64_t axis = first_axis; axis < call.in.dim(); ++axis) {
    row.push_back(call.in.size(axis));
  }
  call.batch.shape.row_bytes = checked_bytes(row, item, function);
  call.batch.shape.fill = item_of(value, type, function + ": pad_value");
  sizes.insert(sizes.end(), row.begin(), row.end());
  call.bytes = checked_bytes(sizes, item, function);
  call.out = make_output(sizes, type, function + ": out", call.in);
  call.batch.out = call.out.mutable_data_ptr();
  call.in = in_order(call.in);
}

}  // namespace

PadCall check_pad(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side) {
  const std::string function = "pad_jagged";
  if (values.dim() == 0) fail(function, ": values must have shape (total, ...), got ()");
  if (length < 0) fail(function, ": length must not be negative, got ", length);
  PadCall call{.in = values, .offsets = offsets, .out = values};
  JaggedShape& shape = call.batch.shape;
  shape = check_keywords(length, max_length, side, function, values, call.offsets);
  shape.total = values.size(0);
  set_arrays(call, {shape.count, length}, 1, value.value_or(0), function, "values");
  call.batch.values = call.in.const_data_ptr();
  return call;
}

UnpadCall check_unpad(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                      std::optional<std::int64_t> max_length, const std::string& side) {
  const std::string function = "unpad_to_jagged";
  if (padded.dim() < 2) {
    fail(function, ": padded must have shape (B, L, ...), got ", shape_text(padded));
  }
  if (total < 0) fail(function, ": total must not be negative, got ", total);
  UnpadCall call{.in = padded, .offsets = offsets, .out = padded};
  JaggedShape& shape = call.batch.shape;
  shape = check_keywords(padded.size(1), max_length, side, function, padded, call.offsets);
  if (padded.size(0) != shape.count) {
    fail(function, ": padded must have shape (B, L, ...) with ", shape.count,
         " samples, one less than offsets, got ", shape_text(padded));
  }
  shape.total = total;
  set_arrays(call, {total}, 2, 0, function, "padded");
  call.batch.padded = call.in.const_data_ptr();
  return call;
}

}  // namespace pinfeed::torch_ops
