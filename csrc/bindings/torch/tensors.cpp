#include "bindings/torch/tensors.h"

#include <torch/csrc/stable/ops.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

namespace pinfeed::torch_ops {
namespace {

std::optional<kernels::ScalarType> scalar_type(ScalarType type) {
  using Scalar = kernels::ScalarType;
  static constexpr std::pair<ScalarType, Scalar> kTypes[] = {
      {ScalarType::Bool, Scalar::boolean},
      {ScalarType::Byte, Scalar::uint8},
      {ScalarType::Char, Scalar::int8},
      {ScalarType::UInt16, Scalar::uint16},
      {ScalarType::Short, Scalar::int16},
      {ScalarType::UInt32, Scalar::uint32},
      {ScalarType::Int, Scalar::int32},
      {ScalarType::UInt64, Scalar::uint64},
      {ScalarType::Long, Scalar::int64},
      {ScalarType::Half, Scalar::float16},
      {ScalarType::BFloat16, Scalar::bfloat16},
      {ScalarType::Float, Scalar::float32},
      {ScalarType::Double, Scalar::float64},
      {ScalarType::ComplexFloat, Scalar::complex64},
      {ScalarType::ComplexDouble, Scalar::complex128},
  };
  for (const auto& [torchs, ours] : kTypes) {
    if (torchs == type) return ours;
  }
  return std::nullopt;
}

arrays::Sizes sizes(const Tensor& tensor) { return {tensor.sizes().data(), tensor.sizes().size()}; }
arrays::Sizes strides(const Tensor& tensor) {
  return {tensor.strides().data(), tensor.strides().size()};
}

bool has_strides(const Tensor& tensor, const Shape& others) {
  return arrays::has_strides(sizes(tensor), strides(tensor), others);
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

arrays::Extent extent(const Tensor& tensor) {
  const auto item = static_cast<std::int64_t>(tensor.element_size());
  return arrays::extent(tensor.const_data_ptr(), sizes(tensor), strides(tensor), item, item);
}

Output make_output(const Shape& shape, ScalarType type, MemoryFormat format,
                   const std::string& subject, const Tensor& first) {
  const Shape strides = format == MemoryFormat::channels_last
                            ? arrays::channels_last_strides(shape, 1)
                            : arrays::contiguous_strides(shape, 1);
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
  return {Tensor(handle), format};
}

Output check_output(const Tensor& out, const Shape& shape, ScalarType type,
                    bool may_be_channels_last, const std::string& subject, const Tensor& first) {
  check_device(out, subject, first);
  if (out.scalar_type() != type || shape_text(out) != shape_text(shape)) {
    fail(subject, " must be ", dtype_text(type), " with shape ", shape_text(shape), ", got ",
         dtype_text(out.scalar_type()), " ", shape_text(out));
  }
  if (has_strides(out, arrays::contiguous_strides(shape, 1)))
    return {out, MemoryFormat::contiguous};
  if (may_be_channels_last && has_strides(out, arrays::channels_last_strides(shape, 1))) {
    return {out, MemoryFormat::channels_last};
  }
  fail(subject, " must be contiguous", may_be_channels_last ? " or in channels_last memory" : "",
       ", got strides ", shape_text(strides(out)));
}

}  // namespace

std::string number_text(double value) {
  for (int digits = 15;; ++digits) {
    char shown[32];
    // Not std::to_chars, which macOS has from 13.3 on.
    std::snprintf(shown, sizeof shown, "%.*g", digits, value);
    const bool is_last = digits == std::numeric_limits<double>::max_digits10;
    if (is_last || std::strtod(shown, nullptr) == value) return shown;
  }
}

std::string dtype_text(ScalarType type) {
  const auto known = scalar_type(type);
  return known ? kernels::traits_of(*known).name : "an unsupported dtype";
}

std::size_t item_size(ScalarType type, const std::string& subject) {
  if (const auto known = scalar_type(type)) return kernels::scalar_size(*known);
  fail(subject, " must be bool, an integer, floating or complex dtype of 1 to 16 bytes, got ",
       "another; look at it as one of them with .view(dtype)");
}

Item item_of(double value, ScalarType type, const std::string& subject) {
  item_size(type, subject);
  if (const auto item = kernels::item_of(value, 0, *scalar_type(type))) return *item;
  fail(subject, " must be a value that ", dtype_text(type), " can hold, got ", value);
}

void check_device(const Tensor& tensor, const std::string& subject, const Tensor& first) {
  if (tensor.is_cpu() != first.is_cpu() || tensor.get_device_index() != first.get_device_index()) {
    fail(subject, " must be on ", device_text(first), " as the other tensors, got ",
         device_text(tensor));
  }
}

Tensor in_order(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

Output output_of(const Tensor* given, const Shape& shape, ScalarType type, MemoryFormat format,
                 bool may_be_channels_last, const std::string& subject, const Tensor& first) {
  return given == nullptr ? make_output(shape, type, format, subject, first)
                          : check_output(*given, shape, type, may_be_channels_last, subject, first);
}

Tensor output_of(const Tensor* given, const Shape& shape, ScalarType type,
                 const std::string& subject, const Tensor& first) {
  return output_of(given, shape, type, MemoryFormat::contiguous, false, subject, first).tensor;
}

void check_no_overlap(const Tensor& out, const Tensor& input, const std::string& subject,
                      const char* input_name) {
  if (arrays::overlap(extent(out), extent(input))) {
    fail(subject, " must not share memory with ", input_name);
  }
}

}  // namespace pinfeed::torch_ops
