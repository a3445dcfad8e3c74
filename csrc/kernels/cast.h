// Casts between types of numbers.
#pragma once

#include <cstddef>

#include "kernels/scalar_type.h"

namespace pinfeed::kernels {

// Converts `count` items. Neither side needs to be aligned; they must not overlap. Returns whether
// all integers fit: false if one changed its value in an integer type, or became infinite as
// float16. Floats and scaled integers may become infinite.
//
// `scale` applies to integers that become float32 or a 16-bit float: float(item) * scale, rounded
// to float32 and then to the type. Other casts ignore it.
using CastItems = bool (*)(const void* in, std::size_t count, void* out, float scale);

// A cast and its scale; null for types without a cast.
struct Cast {
  CastItems items = nullptr;
  float scale = 1;

  bool operator()(const void* in, std::size_t count, void* out) const {
    return items(in, count, out, scale);
  }
  explicit operator bool() const { return items != nullptr; }
};

// Whether a cast between the types applies its scale.
bool takes_scale(ScalarType from, ScalarType to);

// All casts of one instruction set. Every set gives the same results.
struct CastTable {
  CastItems casts[kScalarTypes][kScalarTypes];

  // Returns the cast that does what torch's Tensor.to does, or null where torch.can_cast is false:
  // from numbers to bool, from complex to real, from floating to integer types. Every byte except 0
  // is true. Integers that don't fit wrap. Values are rounded to float32 before a 16-bit float. A
  // NaN stays a NaN; its payload may change.
  Cast find(ScalarType from, ScalarType to, float scale = 1) const {
    return {casts[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)], scale};
  }
};

extern const CastTable kCastScalar;
extern const CastTable kCastAvx2;

}  // namespace pinfeed::kernels
