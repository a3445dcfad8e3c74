// A padding value, from a Python number to an item in memory.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "kernels/fill.h"

namespace pinfeed::bindings {

// `value`: a bool, int, float or complex. `name` as messages call it. Throws TypeError for what is
// no number, ValueError if the dtype can't hold it: a fraction or a NaN in an integer, or a finite
// number out of range. Fractions are rounded to nearest even.
kernels::Fill fill_value(pybind11::handle value, DType dtype, const std::string& name);

// An item for each channel, of one number for all or of one for each.
std::vector<std::uint8_t> fill_pixel(const pybind11::sequence& values, DType dtype,
                                     std::int64_t channels, const std::string& name);

}  // namespace pinfeed::bindings
