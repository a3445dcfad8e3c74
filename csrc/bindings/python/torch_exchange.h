// Torch tensors, read and made through DLPack's exchange table: no torch header, no torch library,
// so that one binary serves every torch version that has the table (2.11 and later).
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/python/dlpack.h"

namespace pinfeed::bindings {

bool is_tensor(pybind11::handle object);

// A look at a tensor that does not own it. Throws what torch raised if it has no plain memory
// (sparse, meta, ...).
dlpack::Tensor look_at_tensor(pybind11::handle tensor);

// Makes a torch tensor that owns `managed` (its deleter runs when the tensor's storage dies).
pybind11::object adopt_as_tensor(dlpack::ManagedTensor* managed);

}  // namespace pinfeed::bindings
