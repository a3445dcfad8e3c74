#include "arrays/layout.h"

#include <algorithm>
#include <stdexcept>

namespace pinfeed::arrays {

std::string shape_text(Sizes shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::size_t checked_bytes(Sizes shape, std::size_t item_size, const std::string& function) {
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  auto bytes = static_cast<std::int64_t>(item_size);
  for (const std::int64_t size : shape) {
    if (!__builtin_mul_overflow(bytes, size == 0 ? 1 : size, &bytes)) continue;
    throw std::invalid_argument(function + ": an output of shape " + shape_text(shape) +
                                " is too large for any memory" +
                                (empty ? ", sizes of 0 aside" : ""));
  }
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

Shape contiguous_strides(Sizes shape, std::int64_t unit) {
  Shape strides(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = unit;
    unit *= std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

Shape channels_last_strides(Sizes shape, std::int64_t unit) {
  const Shape nhwc = contiguous_strides(Shape{shape[0], shape[2], shape[3], shape[1]}, unit);
  return {nhwc[0], nhwc[3], nhwc[1], nhwc[2]};
}

bool has_strides(Sizes shape, Sizes strides, Sizes others) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1 || strides[axis] == others[axis]) continue;
    return std::ranges::find(shape, 0) != shape.end();
  }
  return true;
}

Extent extent(const void* data, Sizes shape, Sizes strides, std::int64_t unit,
              std::size_t item_size) {
  const auto* begin = static_cast<const std::byte*>(data);
  const std::byte* end = begin;
  if (std::ranges::find(shape, 0) != shape.end()) return {begin, end};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t span = (shape[axis] - 1) * strides[axis] * unit;
    (span < 0 ? begin : end) += span;
  }
  return {begin, end + item_size};
}

bool overlap(const Extent& a, const Extent& b) {
  return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

}  // namespace pinfeed::arrays
