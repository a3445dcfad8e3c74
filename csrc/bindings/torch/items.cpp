// The dtypes that the kernels have, and numbers as items of them.
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "bindings/torch/tensors.h"

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

// As few digits as say which number it is.
std::string number_text(double value) {
  for (int digits = 15;; ++digits) {
    std::ostringstream shown;
    shown.precision(digits);
    shown << value;
    const bool is_last = digits == std::numeric_limits<double>::max_digits10;
    if (is_last || std::strtod(shown.str().c_str(), nullptr) == value) return shown.str();
  }
}

}  // namespace

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
  fail(subject, " must be a value that ", dtype_text(type), " can hold, got ", number_text(value));
}

}  // namespace pinfeed::torch_ops
