// Instruction sets, threads and the buffer pool, as Python sees them.
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/python/module.h"
#include "dispatch/dispatch.h"
#include "runtime/buffer_pool.h"
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

py::dict pool_stats() {
  const auto stats = runtime::BufferPool::instance().stats();
  py::dict result;
  result["live_buffers"] = stats.live_buffers;
  result["live_bytes"] = stats.live_bytes;
  result["idle_buffers"] = stats.idle_buffers;
  result["idle_bytes"] = stats.idle_bytes;
  result["mapped_total"] = stats.mapped_total;
  result["reused_total"] = stats.reused_total;
  return result;
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
  m.def("pool_stats", &pool_stats);
  m.def("trim_pool", [] { runtime::BufferPool::instance().trim(); });
  m.def(
      "set_pool_idle_timeout",
      [](double seconds) {
        runtime::BufferPool::instance().set_idle_timeout(
            std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
      },
      py::arg("seconds"));
}

}  // namespace pinfeed::bindings
