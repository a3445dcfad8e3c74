// The dtypes that can be cast, and their casts.
#pragma once

#include <optional>
#include <string>

#include "bindings/python/array_view.h"
#include "kernels/cast.h"

namespace pinfeed::bindings {

struct Types {
  DType from, to;
  float scale = 1;

  kernels::Cast cast() const;  // of the instruction set in use
};

// What integers are multiplied with as they become float32 or a 16-bit float.
using Scale = std::optional<float>;

// Throws TypeError if there is no cast from one to the other, or none that takes a scale.
// `subject`: what messages call the array; `shown`: what they call its dtype, if not `from`.
Types find_types(DType from, const std::string& to, const Subject& subject, Scale scale = {},
                 std::optional<DType> shown = {});

// Throws TypeError for a dtype that no cast knows.
DType dtype_named(const std::string& dtype, const Subject& subject);

// Whether integers of one dtype may not fit in the other.
bool may_not_fit(DType from, DType to);

// Throws ValueError for the first integer of an array that does not fit in `to`, if there is one.
void require_integers_fit(const std::byte* data, std::span<const std::int64_t> shape,
                          const std::int64_t* strides, const Types& types, const Subject& subject);

// Throws TypeError, in the name of `function`, for the one dtype that NumPy lacks.
void require_numpy_has(DType dtype, const std::string& function);

}  // namespace pinfeed::bindings
