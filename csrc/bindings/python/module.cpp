// pinfeed._core: a table of contents.
#include <pybind11/pybind11.h>

namespace pinfeed::bindings {

void register_array_view(pybind11::module_& m);
void register_copies(pybind11::module_& m);
void register_erase(pybind11::module_& m);
void register_file_array(pybind11::module_& m);
void register_images(pybind11::module_& m);
void register_indices(pybind11::module_& m);
void register_mapped_file(pybind11::module_& m);
void register_pack(pybind11::module_& m);
void register_pad(pybind11::module_& m);
void register_part_arrays(pybind11::module_& m);
void register_patches(pybind11::module_& m);
void register_pillow(pybind11::module_& m);
void register_random_order(pybind11::module_& m);
void register_problem(pybind11::module_& m);
void register_row_plan(pybind11::module_& m);
void register_runtime(pybind11::module_& m);
void register_shared_slot(pybind11::module_& m);
void register_targets(pybind11::module_& m);

// csrc/README.md lists the state that threads share, and its guards.
PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  register_array_view(m);
  register_copies(m);
  register_erase(m);
  register_file_array(m);
  register_images(m);
  register_indices(m);
  register_mapped_file(m);
  register_pack(m);
  register_pad(m);
  register_part_arrays(m);
  register_patches(m);
  register_pillow(m);
  register_random_order(m);
  register_problem(m);
  register_row_plan(m);
  register_runtime(m);
  register_shared_slot(m);
  register_targets(m);
}

}  // namespace pinfeed::bindings
