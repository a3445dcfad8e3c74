// For PINFEED_DEBUG=1: a look at every element that is about to be cast.
#pragma once

#include <string>

#include "bindings/python/sequences.h"

namespace pinfeed::bindings {

// Whether the environment asks for it, once and for all.
bool checks_elements();

// Throws ValueError if casting to `dtype` would change an element beyond rounding: integers out of
// range wrap, floats beyond the largest become infinite.
void check_elements(const Sequences& sequences, DType dtype, const std::string& name);

}  // namespace pinfeed::bindings
