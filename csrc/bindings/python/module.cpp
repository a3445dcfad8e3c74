// pinfeed._core: a table of contents.
#include "bindings/python/module.h"

namespace pinfeed::bindings {

// csrc/README.md says what threads share, and what guards it.
PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  register_copies(m);
  register_erase(m);
  register_file_array(m);
  register_images(m);
  register_indices(m);
  register_mapped_file(m);
  register_mix(m);
  register_pack(m);
  register_pad(m);
  register_part_arrays(m);
  register_patches(m);
  register_random_order(m);
  register_problem(m);
  register_row_plan(m);
  register_runtime(m);
  register_shared_slot(m);
  register_strings(m);
  register_targets(m);
}

}  // namespace pinfeed::bindings
