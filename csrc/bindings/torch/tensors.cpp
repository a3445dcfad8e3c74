#include "bindings/torch/tensors.h"

#include <torch/csrc/stable/ops.h>

namespace pinfeed::torch_ops {
namespace {

// Of a shape that checked_bytes lets pass, or a stride could overflow.
Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis] > 0 ? shape[axis] : 1;
  }
  return strides;
}

Shape channels_last_strides(const Shape& shape) {
  const Shape nhwc = contiguous_strides({shape[0], shape[2], shape[3], shape[1]});
  return {nhwc[0], nhwc[3], nhwc[1], nhwc[2]};
}

// Strides of axes of one item mean nothing; nothing is laid out where there are no items.
bool has_strides(const Tensor& tensor, const Shape& strides) {
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    const auto i = static_cast<std::int64_t>(axis);
    if (tensor.size(i) > 1 && tensor.stride(i) != strides[axis]) return tensor.numel() == 0;
  }
  return true;
}

std::string device_text(const Tensor& tensor) {
  std::int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  if (type == aoti_torch_device_type_cpu()) return "cpu";
  const std::string index = std::to_string(tensor.get_device_index());
  if (type == aoti_torch_device_type_cuda()) return "cuda:" + index;
  if (type == aoti_torch_device_type_meta()) return "meta";
  return "another kind of device";
}

// Where a tensor's memory begins and ends.
struct Extent {
  const char* begin;
  const char* end;
};

Extent extent(const Tensor& tensor) {
  const auto* const begin = static_cast<const char*>(tensor.const_data_ptr());
  if (tensor.numel() == 0) return {begin, begin};
  std::int64_t last = 0;
  for (std::int64_t axis = 0; axis < tensor.dim(); ++axis) {
    last += (tensor.size(axis) - 1) * tensor.stride(axis);
  }
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size())};
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

void check_device(const Tensor& tensor, DeviceKind kind, const std::string& subject,
                  const Tensor* first) {
  const bool is_there = kind == DeviceKind::cuda ? tensor.is_cuda() : tensor.is_cpu();
  if (!is_there) {
    // The dispatcher chose by another of the call's tensors.
    fail(subject, " must be on the same device as the other tensors, ",
         kind == DeviceKind::cuda ? "a CUDA device" : "the CPU", ", got ", device_text(tensor));
  }
  if (first != nullptr && tensor.get_device_index() != first->get_device_index()) {
    fail(subject, " must be on ", device_text(*first), " as the other tensors, got ",
         device_text(tensor));
  }
}

Tensor check_integers(const Tensor& tensor, const Shape& shape, const std::string& subject,
                      DeviceKind kind, const Tensor& first) {
  check_device(tensor, kind, subject, &first);
  const bool has_shape = shape_text(tensor) == shape_text(shape);
  if (tensor.scalar_type() != ScalarType::Long || !has_shape) {
    fail(subject, " must be int64 with shape ", shape_text(shape), ", got ",
         dtype_text(tensor.scalar_type()), " ", shape_text(tensor));
  }
  return in_order(tensor);
}

Tensor in_order(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

std::int64_t checked_bytes(const Shape& shape, std::size_t item_size, const std::string& function) {
  auto bytes = static_cast<std::int64_t>(item_size);
  bool overflow = false, empty = false;
  for (const std::int64_t size : shape) {
    empty = empty || size == 0;
    overflow = overflow || __builtin_mul_overflow(bytes, size == 0 ? 1 : size, &bytes);
  }
  if (overflow) {
    fail(function, ": an output of shape ", shape_text(shape), " is larger than memory can be",
         empty ? ", sizes of 0 aside" : "");
  }
  return empty ? 0 : bytes;
}

Output make_output(const Shape& shape, ScalarType type, Order order, const std::string& subject,
                   const Tensor& first) {
  const Shape strides =
      order == Order::channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  std::int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(first.get(), &device_type));
  // The same number, in all releases, as torch's own for the dtype.
  const auto dtype = torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(type));
  AtenTensorHandle handle = nullptr;
  const AOTITorchError error = aoti_torch_empty_strided(
      static_cast<std::int64_t>(shape.size()), shape.data(), strides.data(), dtype, device_type,
      first.get_device_index(), &handle);
  if (error != AOTI_TORCH_SUCCESS) {  // torch 2.11 doesn't tell why
    throw std::runtime_error(text(subject, " could not be allocated: ", dtype_text(type), " ",
                                  shape_text(shape), " on ", device_text(first)));
  }
  return {Tensor(handle), order};
}

Output check_output(const Tensor& out, const Shape& shape, ScalarType type,
                    bool may_be_channels_last, const std::string& subject, DeviceKind kind,
                    const Tensor& first) {
  check_device(out, kind, subject, &first);
  if (out.scalar_type() != type || shape_text(out) != shape_text(shape)) {
    fail(subject, " must be ", dtype_text(type), " with shape ", shape_text(shape), ", got ",
         dtype_text(out.scalar_type()), " ", shape_text(out));
  }
  if (has_strides(out, contiguous_strides(shape))) return {out, Order::contiguous};
  if (may_be_channels_last && has_strides(out, channels_last_strides(shape))) {
    return {out, Order::channels_last};
  }
  fail(subject, " must be contiguous", may_be_channels_last ? " or in channels_last memory" : "",
       ", got strides ", shape_text({out.strides().data(), out.strides().size()}));
}

void check_no_overlap(const Tensor& out, const Tensor& input, const std::string& subject,
                      const char* input_name) {
  const Extent to = extent(out), from = extent(input);
  const bool is_empty = to.begin == to.end || from.begin == from.end;
  if (!is_empty && to.begin < from.end && from.begin < to.end) {
    fail(subject, " must not share memory with ", input_name);
  }
}

}  // namespace pinfeed::torch_ops
