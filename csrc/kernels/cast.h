// Numbers of one type, as numbers of another.
#pragma once

#include <cstddef>

namespace pinfeed::kernels {

enum class ScalarType {
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

std::size_t scalar_size(ScalarType type);

// Converts `count` items. Neither side needs to be aligned; they must not overlap.
using Cast = void (*)(const void* in, std::size_t count, void* out);

// The cast that gives what torch's Tensor.to gives, or nullptr where torch.can_cast says no: from
// numbers to bool, from complex to real, from floating to integer types. Any byte but 0 is true.
// Integers that don't fit wrap. Whatever becomes a 16-bit float is rounded to float32 first. A NaN
// stays one, whatever its payload.
Cast find_cast(ScalarType from, ScalarType to);

}  // namespace pinfeed::kernels
