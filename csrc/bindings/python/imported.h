// Objects imported from Python modules once, at first use.
#pragma once

#include <pybind11/gil_safe_call_once.h>
#include <pybind11/pybind11.h>

#include <type_traits>

namespace pinfeed::bindings {

// The result of the first call of make(), a captureless lambda, whose type identifies it. Unlike
// with a function-local static, other threads wait without the GIL: an import releases it, and a
// thread that took it then would wait for the static forever.
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
