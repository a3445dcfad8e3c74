// What is imported from Python modules once, at first use.
#pragma once

#include <pybind11/gil_safe_call_once.h>
#include <pybind11/pybind11.h>

#include <type_traits>

namespace pinfeed::bindings {

// The result of make(), from its first call; a captureless lambda has a type, and so a result, of
// its own. Unlike with a static of the language, threads that come meanwhile wait without the GIL:
// an import lets go of it, and whoever took it then would wait for the static for ever.
template <class Make>
const std::invoke_result_t<Make>& once(Make make) {
  using Result = std::invoke_result_t<Make>;
  PYBIND11_CONSTINIT static pybind11::gil_safe_call_once_and_store<Result> stored;
  return stored.call_once_and_store_result(make).get_stored();
}

// An attribute of a module.
inline pybind11::object imported(const char* module, const char* name) {
  return pybind11::module_::import(module).attr(name);
}

}  // namespace pinfeed::bindings
