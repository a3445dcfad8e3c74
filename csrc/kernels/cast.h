// Numbers of one type, as numbers of another.
#pragma once

#include <cstddef>

#include "kernels/scalar_type.h"

namespace pinfeed::kernels {

// Converts `count` items. Neither side needs to be aligned; they must not overlap. Returns whether
// all integers fit: false if one became another number in an integer type that can't hold it, or
// infinite as float16. Floats may become infinite, and so may what is scaled.
//
// `scale` is for integers that become float32 or a 16-bit float: float(item) * scale, rounded as
// float32 and then to the type. Other casts don't look at it.
using CastItems = bool (*)(const void* in, std::size_t count, void* out, float scale);

// A cast and its scale; null where there is none.
struct Cast {
  CastItems items = nullptr;
  float scale = 1;

  bool operator()(const void* in, std::size_t count, void* out) const {
    return items(in, count, out, scale);
  }
  explicit operator bool() const { return items != nullptr; }
};

// Whether a cast between the types looks at its scale.
bool takes_scale(ScalarType from, ScalarType to);

// All casts of one instruction set; the results are the same on each.
struct CastTable {
  CastItems casts[kScalarTypes][kScalarTypes];

  // The cast that gives what torch's Tensor.to gives, or null where torch.can_cast says no: from
  // numbers to bool, from complex to real, from floating to integer types. Any byte but 0 is true.
  // Integers that don't fit wrap. Whatever becomes a 16-bit float is rounded to float32 first. A
  // NaN stays one, whatever its payload.
  Cast find(ScalarType from, ScalarType to, float scale = 1) const {
    return {casts[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)], scale};
  }
};

extern const CastTable kCastScalar;
extern const CastTable kCastAvx2;

}  // namespace pinfeed::kernels
