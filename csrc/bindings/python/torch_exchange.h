// Reads and creates torch tensors through DLPack's exchange table: no torch header, no torch
// library, so that one binary serves every torch version that has the table (2.11 and later).
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <utility>

#include "bindings/python/array_view.h"
#include "bindings/python/dlpack.h"

namespace pinfeed::bindings {

bool is_tensor(pybind11::handle object);
bool is_tensor_itself(pybind11::handle object);  // not of a subclass

// A view of a tensor, without ownership. Throws torch's exception if it has no plain memory
// (sparse, meta, ...).
dlpack::Tensor look_at_tensor(pybind11::handle tensor);
// None if it has no plain memory, or not on the CPU.
std::optional<dlpack::Tensor> find_memory(pybind11::handle tensor);

// DLPack's name of a dtype, and the inverse: none for dtypes without kernels.
dlpack::DataType dlpack_type(DType dtype);
std::optional<DType> dtype_of(const dlpack::DataType& type);

// Returns a torch tensor that owns `managed` (its deleter runs when the tensor's storage dies).
pybind11::object adopt_as_tensor(dlpack::ManagedTensor* managed);

// A contiguous tensor over CPU memory. let_go(data) is called when its storage dies: on any
// thread, with or without the GIL, so it must not touch Python.
template <class LetGo>
pybind11::object new_tensor(void* data, const Shape& shape, DType dtype, LetGo let_go) {
  struct Owner {
    dlpack::ManagedTensor managed;
    Shape shape, strides;
    LetGo let_go;

    static void end(dlpack::ManagedTensor* managed) {
      const std::unique_ptr<Owner> self(static_cast<Owner*>(managed->context));
      self->let_go(managed->tensor.data);
    }
  };
  auto owner = std::make_unique<Owner>(
      Owner{{}, shape, arrays::contiguous_strides(shape, 1), std::move(let_go)});
  owner->managed = {
      .version = {1, 0},
      .context = owner.get(),
      .deleter = Owner::end,
      .flags = 0,
      .tensor = {.data = data,
                 .device = {dlpack::kCpu, 0},
                 .axes = static_cast<std::int32_t>(shape.size()),
                 .type = dlpack_type(dtype),
                 .shape = owner->shape.data(),
                 .strides = owner->strides.data(),
                 .byte_offset = 0},
  };
  return adopt_as_tensor(&owner.release()->managed);
}

}  // namespace pinfeed::bindings
