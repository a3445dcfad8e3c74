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

std::string device_text(const Tensor& tensor) {
  std::int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  if (type == aoti_torch_device_type_cpu()) return "cpu";
  const std::string index = std::to_string(tensor.get_device_index());
  if (type == aoti_torch_device_type_cuda()) return "cuda:" + index;
  if (type == aoti_torch_device_type_meta()) return "meta";
  return "another kind of device";
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
  const auto scalar = scalar_type(type);
  return scalar ? kernels::traits_of(*scalar).name : "an unsupported dtype";
}

std::size_t item_size(ScalarType type, const std::string& subject) {
  if (const auto scalar = scalar_type(type)) return kernels::scalar_size(*scalar);
  fail(subject, " must be bool, an integer, floating or complex dtype of 1 to 16 bytes, got ",
       "another; reinterpret it with .view(dtype)");
}

Item item_of(double value, ScalarType type, const std::string& subject) {
  item_size(type, subject);
  if (const auto item = kernels::item_of(value, 0, *scalar_type(type))) return *item;
  fail(subject, " must be a value that ", dtype_text(type), " can hold, got ", value);
}

void check_device(const Tensor& tensor, const std::string& subject, const Tensor& first) {
  if (tensor.is_cpu() != first.is_cpu() || tensor.get_device_index() != first.get_device_index()) {
    fail(subject, " must be on ", device_text(first), " like the other tensors, got ",
         device_text(tensor));
  }
}

Tensor make_output(const Shape& shape, ScalarType type, const std::string& subject,
                   const Tensor& first, MemoryFormat format) {
  const Shape strides = format == MemoryFormat::channels_last
                            ? arrays::channels_last_strides(shape, 1)
                            : arrays::contiguous_strides(shape, 1);
  std::int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(first.get(), &device_type));
  // torch's number for the dtype, the same in all releases.
  const auto dtype = torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(type));
  AtenTensorHandle handle = nullptr;
  const AOTITorchError error = aoti_torch_empty_strided(
      static_cast<std::int64_t>(shape.size()), shape.data(), strides.data(), dtype, device_type,
      first.get_device_index(), &handle);
  if (error != AOTI_TORCH_SUCCESS) {  // torch 2.11 gives no reason
    throw std::runtime_error(text(subject, " could not be allocated: ", dtype_text(type), " ",
                                  shape_text(shape), " on ", device_text(first)));
  }
  return Tensor(handle);
}

}  // namespace pinfeed::torch_ops
