#pragma once

#include <pybind11/pybind11.h>

namespace pinfeed::bindings {

void register_copies(pybind11::module_& m);
void register_erase(pybind11::module_& m);
void register_file_array(pybind11::module_& m);
void register_images(pybind11::module_& m);
void register_indices(pybind11::module_& m);
void register_mapped_file(pybind11::module_& m);
void register_mix(pybind11::module_& m);
void register_pack(pybind11::module_& m);
void register_pad(pybind11::module_& m);
void register_part_arrays(pybind11::module_& m);
void register_patches(pybind11::module_& m);
void register_random_order(pybind11::module_& m);
void register_problem(pybind11::module_& m);
void register_row_plan(pybind11::module_& m);
void register_runtime(pybind11::module_& m);
void register_shared_slot(pybind11::module_& m);
void register_strings(pybind11::module_& m);
void register_targets(pybind11::module_& m);

}  // namespace pinfeed::bindings
