#include "bindings/torch/jagged.h"

#include <algorithm>

namespace pinfeed::torch_ops {
namespace {

using kernels::JaggedShape;

Shape shape_of(const Tensor& tensor, std::int64_t first_axis) {
  Shape shape;
  for (std::int64_t axis = first_axis; axis < tensor.dim(); ++axis) {
    shape.push_back(tensor.size(axis));
  }
  return shape;
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

Shape padded_shape(const JaggedShape& shape, const Shape& row) {
  Shape padded{shape.count, shape.length};
  padded.insert(padded.end(), row.begin(), row.end());
  return padded;
}

}  // namespace

PadCall check_pad(const Tensor& values, const Tensor& offsets, std::int64_t length,
                  std::optional<std::int64_t> max_length, std::optional<double> value,
                  const std::string& side) {
  const std::string function = "pad_jagged";
  if (values.dim() == 0) fail(function, ": values must have shape (total, ...), got ()");
  if (length < 0) fail(function, ": length must not be negative, got ", length);
  PadCall call{.values = values, .offsets = offsets, .out = values};
  JaggedShape& shape = call.batch.shape;
  shape = check_keywords(length, max_length, side, function, values, call.offsets);
  const ScalarType type = values.scalar_type();
  const std::size_t item = item_size(type, function + ": the dtype of values");
  const Shape row = shape_of(values, 1);
  shape.total = values.size(0);
  shape.row_bytes = checked_bytes(row, item, function);
  shape.fill = item_of(value.value_or(0), type, function + ": pad_value");

  const Shape padded = padded_shape(shape, row);
  call.bytes = checked_bytes(padded, item, function);
  call.out = make_output(padded, type, function + ": out", values);
  call.batch.out = call.out.mutable_data_ptr();
  call.values = in_order(values);
  call.batch.values = call.values.const_data_ptr();
  return call;
}

UnpadCall check_unpad(const Tensor& padded, const Tensor& offsets, std::int64_t total,
                      std::optional<std::int64_t> max_length, const std::string& side) {
  const std::string function = "unpad_to_jagged";
  if (padded.dim() < 2) {
    fail(function, ": padded must have shape (B, L, ...), got ", shape_text(padded));
  }
  if (total < 0) fail(function, ": total must not be negative, got ", total);
  UnpadCall call{.padded = padded, .offsets = offsets, .out = padded};
  JaggedShape& shape = call.batch.shape;
  shape = check_keywords(padded.size(1), max_length, side, function, padded, call.offsets);
  const std::int64_t samples = padded.size(0);
  if (samples != shape.count) {
    fail(function, ": padded must have shape (B, L, ...) with ", shape.count,
         " samples, one less than offsets, got ", shape_text(padded));
  }
  const ScalarType type = padded.scalar_type();
  const std::size_t item = item_size(type, function + ": the dtype of padded");
  Shape jagged = shape_of(padded, 2);
  shape.total = total;
  shape.row_bytes = checked_bytes(jagged, item, function);
  shape.fill.size = static_cast<std::int64_t>(item);
  jagged.insert(jagged.begin(), shape.total);
  call.bytes = checked_bytes(jagged, item, function);
  call.out = make_output(jagged, type, function + ": out", padded);
  call.padded = in_order(padded);
  call.batch.padded = call.padded.const_data_ptr();
  call.batch.out = call.out.mutable_data_ptr();
  return call;
}

}  // namespace pinfeed::torch_ops
