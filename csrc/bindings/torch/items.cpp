// The dtypes that the kernels have, and numbers as items of them.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "bindings/torch/tensors.h"
#include "kernels/round.h"

namespace pinfeed::torch_ops {
namespace {

enum class Kind : std::uint8_t { whole, real, complex };

struct Dtype {
  ScalarType type;
  const char* name;
  Kind kind;
  std::size_t size;
  double least, most;  // of whole numbers, as far as float64 has them
};

// The greatest float64 below 2**63, or 2**64: beyond it no float64 fits.
constexpr double kMostInt64 = 9223372036854774784.0;
constexpr double kMostUint64 = 18446744073709549568.0;

constexpr Dtype kDtypes[] = {
    {ScalarType::Bool, "bool", Kind::whole, 1, 0, 1},
    {ScalarType::Byte, "uint8", Kind::whole, 1, 0, 255},
    {ScalarType::Char, "int8", Kind::whole, 1, -128, 127},
    {ScalarType::UInt16, "uint16", Kind::whole, 2, 0, 65535},
    {ScalarType::Short, "int16", Kind::whole, 2, -32768, 32767},
    {ScalarType::UInt32, "uint32", Kind::whole, 4, 0, 4294967295.0},
    {ScalarType::Int, "int32", Kind::whole, 4, -2147483648.0, 2147483647.0},
    {ScalarType::UInt64, "uint64", Kind::whole, 8, 0, kMostUint64},
    {ScalarType::Long, "int64", Kind::whole, 8, -9223372036854775808.0, kMostInt64},
    {ScalarType::Half, "float16", Kind::real, 2, 0, 0},
    {ScalarType::BFloat16, "bfloat16", Kind::real, 2, 0, 0},
    {ScalarType::Float, "float32", Kind::real, 4, 0, 0},
    {ScalarType::Double, "float64", Kind::real, 8, 0, 0},
    {ScalarType::ComplexFloat, "complex64", Kind::complex, 8, 0, 0},
    {ScalarType::ComplexDouble, "complex128", Kind::complex, 16, 0, 0},
};

const Dtype* find_dtype(ScalarType type) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.type == type) return &dtype;
  }
  return nullptr;
}

template <class Number>
void put(Item& item, Number number) {
  std::memcpy(item.bytes.data(), &number, sizeof(number));
}

// Low bytes come first on every machine pinfeed is built for.
void put_whole(Item& item, double value, bool is_signed) {
  if (is_signed) {
    put(item, static_cast<std::int64_t>(value));
  } else {
    put(item, static_cast<std::uint64_t>(value));
  }
}

// Writes the value as its nearest; false if that is infinite and the value is not.
bool put_real(Item& item, double value, ScalarType type) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case ScalarType::Half: {
      const std::uint16_t half = kernels::to_float16_bits(single);
      put(item, half);
      return (half & 0x7fffu) < 0x7c00u;
    }
    case ScalarType::BFloat16: {
      const std::uint16_t half = kernels::to_bfloat16_bits(single);
      put(item, half);
      return (half & 0x7fffu) < 0x7f80u;
    }
    case ScalarType::Float:
    case ScalarType::ComplexFloat:
      put(item, single);
      return std::isfinite(single);
    default:
      put(item, value);
      return true;
  }
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
  const Dtype* const dtype = find_dtype(type);
  return dtype != nullptr ? dtype->name : "an unsupported dtype";
}

std::size_t item_size(ScalarType type, const std::string& subject) {
  const Dtype* const dtype = find_dtype(type);
  if (dtype == nullptr) {
    fail(subject, " must be bool, an integer, floating or complex dtype of 1 to 16 bytes, got ",
         "another; look at it as one of them with .view(dtype)");
  }
  return dtype->size;
}

Item item_of(double value, ScalarType type, const std::string& subject) {
  Item item{.size = static_cast<std::int64_t>(item_size(type, subject))};
  const Dtype& dtype = *find_dtype(type);
  bool fits = false;
  if (dtype.kind == Kind::whole) {
    fits = value >= dtype.least && value <= dtype.most && value == std::floor(value);
    if (fits) put_whole(item, value, dtype.least < 0);
  } else {
    fits = put_real(item, value, type) || !std::isfinite(value);
  }
  if (!fits) {
    fail(subject, " must be a value that ", dtype.name, " can hold, got ", number_text(value));
  }
  return item;
}

}  // namespace pinfeed::torch_ops
