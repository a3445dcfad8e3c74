// pinfeed._core: a table of contents.
#include <pybind11/pybind11.h>

namespace pinfeed::bindings {

using Register = void(pybind11::module_& m);
Register register_array_view, register_copies, register_erase, register_file_array, register_images,
    register_indices, register_mapped_file, register_pack, register_pad, register_part_arrays,
    register_patches, register_pillow, register_problem, register_runtime, register_samplers,
    register_shared_slot, register_targets;

// csrc/README.md lists the state that threads share, and its guards.
PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  for (Register* const add :
       {register_array_view, register_copies, register_erase, register_file_array, register_images,
        register_indices, register_mapped_file, register_pack, register_pad, register_part_arrays,
        register_patches, register_pillow, register_problem, register_runtime, register_samplers,
        register_shared_slot, register_targets}) {
    add(m);
  }
}

}  // namespace pinfeed::bindings
