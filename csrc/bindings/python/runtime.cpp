// Instruction sets and threads, for Python.
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "runtime/thread_pool.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

std::vector<std::string> isa_names(bool supported_only) {
  std::vector<std::string> names;
  for (const dispatch::Isa& isa : dispatch::compiled_isas()) {
    if (!supported_only || isa.supported()) names.emplace_back(isa.name);
  }
  return names;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

}  // namespace

void register_runtime(py::module_& m) {
  m.attr("version") = PINFEED_VERSION;
  m.attr("compiler") = compiler();
  m.def("compiled_isas", [] { return isa_names(false); });
  m.def("available_isas", [] { return isa_names(true); });
  m.def("active_isa", [] { return std::string(dispatch::active_isa().name); });
  m.def(
      "force_isa", [](const std::string& name) { return dispatch::force_isa(name); },
      py::arg("name"));
  m.def("available_cpus", &runtime::available_cpus);
}

}  // namespace pinfeed::bindings
