// Dtypes, their casts, and Python numbers as items.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "kernels/cast.h"
#include "kernels/fill.h"

namespace pinfeed::bindings {

struct Types {
  DType from, to;
  float scale = 1;

  kernels::Cast cast() const;  // of the current instruction set
};

// The factor for integers that become float32 or a 16-bit float.
using Scale = std::optional<float>;

// Throws TypeError if one dtype can't be cast to the other, or not with a scale.
// `subject`: the array's name in messages; `shown`: its dtype in messages, if not `from`.
Types find_types(DType from, const std::string& to, const Subject& subject, Scale scale = {},
                 std::optional<DType> shown = {});

// Throws TypeError for a dtype without casts.
DType dtype_named(const std::string& dtype, const Subject& subject);

// Whether integers of one dtype may not fit the other; for float16, whether any become infinite.
bool may_not_fit(DType from, DType to);

// Throws ValueError for the first integer of an array that does not fit in `to`, if there is one.
void require_integers_fit(const std::byte* data, std::span<const std::int64_t> shape,
                          const std::int64_t* strides, const Types& types, const Subject& subject);

// A padding value: a bool, int, float or complex. `name` is for messages. Throws TypeError if it is
// not a number, ValueError if the dtype can't hold it: a fraction or a NaN in an integer, or a
// finite number out of range. Fractions are rounded to nearest even.
kernels::Fill fill_value(pybind11::handle value, DType dtype, const std::string& name);

// An item per channel, from one number for all channels or one per channel.
std::vector<std::uint8_t> fill_pixel(const pybind11::sequence& values, DType dtype,
                                     std::int64_t channels, const std::string& name);

// Throws TypeError, in the name of `function`, for the one dtype that NumPy lacks.
void require_numpy_has(DType dtype, const std::string& function);

}  // namespace pinfeed::bindings
