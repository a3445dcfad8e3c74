// The numeric types of arrays.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace pinfeed::kernels {

enum class ScalarType : std::uint8_t {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  complex128,
};
inline constexpr std::size_t kScalarTypes = 15;

enum class ScalarKind : std::uint8_t { boolean, unsigned_int, signed_int, floating, complex };

struct Scalar {
  const char* name;
  ScalarKind kind;
  std::size_t size;  // bytes
};

// In the order of ScalarType.
inline constexpr std::array<Scalar, kScalarTypes> kScalars{{
    {"bool", ScalarKind::boolean, 1},
    {"uint8", ScalarKind::unsigned_int, 1},
    {"int8", ScalarKind::signed_int, 1},
    {"uint16", ScalarKind::unsigned_int, 2},
    {"int16", ScalarKind::signed_int, 2},
    {"uint32", ScalarKind::unsigned_int, 4},
    {"int32", ScalarKind::signed_int, 4},
    {"uint64", ScalarKind::unsigned_int, 8},
    {"int64", ScalarKind::signed_int, 8},
    {"float16", ScalarKind::floating, 2},
    {"bfloat16", ScalarKind::floating, 2},
    {"float32", ScalarKind::floating, 4},
    {"float64", ScalarKind::floating, 8},
    {"complex64", ScalarKind::complex, 8},
    {"complex128", ScalarKind::complex, 16},
}};

constexpr const Scalar& traits_of(ScalarType type) {
  return kScalars[static_cast<std::size_t>(type)];
}

constexpr std::size_t scalar_size(ScalarType type) { return traits_of(type).size; }

// Whether an integer, signed or not. bool is not an integer.
constexpr bool is_integer(ScalarType type) {
  const ScalarKind kind = traits_of(type).kind;
  return kind == ScalarKind::unsigned_int || kind == ScalarKind::signed_int;
}

// The type of each kind and size, the latter as a power of two.
inline constexpr auto kScalarsBySize = [] {
  std::array<std::array<std::optional<ScalarType>, 5>, 5> types{};
  for (std::size_t i = 0; i < kScalarTypes; ++i) {
    const auto type = static_cast<ScalarType>(i);
    if (type == ScalarType::bfloat16) continue;
    types[static_cast<std::size_t>(kScalars[i].kind)][std::countr_zero(kScalars[i].size)] = type;
  }
  return types;
}();

// The type of a kind and a size in bytes; 2 bytes are float16, not bfloat16.
constexpr std::optional<ScalarType> find_scalar(ScalarKind kind, std::size_t size) {
  if (!std::has_single_bit(size) || size > 16) return std::nullopt;
  return kScalarsBySize[static_cast<std::size_t>(kind)][std::countr_zero(size)];
}

}  // namespace pinfeed::kernels
