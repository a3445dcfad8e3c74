// Exchange with torch: dtypes by name, checks, outputs.
//
// torch converts standard exceptions to Python's: std::invalid_argument becomes ValueError
// (RuntimeError from torch 2.15 on), and std::out_of_range IndexError.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "arrays/layout.h"
#include "kernels/item.h"

namespace pinfeed::torch_ops {

using arrays::checked_bytes;
using arrays::Shape;
using arrays::shape_text;
using kernels::Item;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// The shortest text that identifies the number.
std::string number_text(double value);

inline std::string as_text(std::string_view part) { return std::string(part); }
template <class Number>
  requires std::is_arithmetic_v<Number>
std::string as_text(Number value) {
  if constexpr (std::is_floating_point_v<Number>) return number_text(value);
  return std::to_string(value);
}

// Without streams: a library that is linked with libstdc++.a shares the ids of its locale facets
// with the process, but not the facets, and crashes when it prints a number.
template <class... Parts>
std::string text(const Parts&... parts) {
  return (std::string() + ... + as_text(parts));
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw std::invalid_argument(text(parts...));
}

inline std::string shape_text(const Tensor& tensor) {
  return shape_text({tensor.sizes().data(), tensor.sizes().size()});
}

// "float32" for Float; "an unsupported dtype" for a dtype without kernels.
std::string dtype_text(ScalarType type);

// Bytes of an item of a supported dtype. Fails, in the name of `subject`, for others.
std::size_t item_size(ScalarType type, const std::string& subject);

// Fails unless the tensor is on the device of `first`: the dispatcher may have used either.
void check_device(const Tensor& tensor, const std::string& subject, const Tensor& first);

// The memory layout of an output: in order, or NCHW stored as NHWC (torch.channels_last).
enum class MemoryFormat : std::uint8_t { contiguous, channels_last };

// New memory on the device of `first`.
Tensor make_output(const Shape& shape, ScalarType type, const std::string& subject,
                   const Tensor& first, MemoryFormat format = MemoryFormat::contiguous);

// A padding value as an item of a dtype. Fails if the dtype can't hold it. For complex dtypes it is
// the real part.
Item item_of(double value, ScalarType type, const std::string& subject);

}  // namespace pinfeed::torch_ops
