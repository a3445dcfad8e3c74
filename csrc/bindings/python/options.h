// Options of native calls: structs whose members are keywords of their constructors in Python,
// where fields build them once. They can be pickled, and repr shows them.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace pinfeed::bindings {

template <class Options, class Value>
struct Keyword {
  const char* name;
  Value Options::* member;
};
template <class Options, class Value>
Keyword(const char*, Value Options::*) -> Keyword<Options, Value>;  // which clang 14 doesn't make

// Binds a struct as a class. `keywords` are all its members, in order.
template <class Options, class... Values>
pybind11::class_<Options> bind_options(pybind11::module_& m, const char* name,
                                       Keyword<Options, Values>... keywords) {
  namespace py = pybind11;
  const Options defaults{};
  // Of no metaclass, as the stub has it.
  py::class_<Options> bound(m, name, py::metaclass(reinterpret_cast<PyObject*>(&PyType_Type)));
  bound.def(py::init<Values...>(), py::kw_only(),
            (py::arg(keywords.name) = defaults.*keywords.member)...);
  bound.def("__repr__", [name, keywords...](const Options& self) {
    py::list parts;
    (parts.append(py::str("{}={!r}").format(keywords.name, self.*keywords.member)), ...);
    return py::str("{}({})").format(name, py::str(", ").attr("join")(parts));
  });
  bound.def(py::pickle(
      [keywords...](const Options& self) { return py::make_tuple(self.*keywords.member...); },
      [keywords...](const py::tuple& state) {
        Options options{};
        std::size_t i = 0;
        ((options.*keywords.member = state[i++].template cast<Values>()), ...);
        return options;
      }));
  return bound;
}

// The names of an enum's values, as `Names<Enum>::all`, pairs of them, says. In Python they are
// strings.
template <class Enum>
struct Names;

template <class Enum>
struct NamedCaster {
  PYBIND11_TYPE_CASTER(Enum, pybind11::detail::const_name("str"));

  bool load(pybind11::handle source, bool) {
    if (!pybind11::isinstance<pybind11::str>(source)) return false;
    const auto name = source.cast<std::string>();
    const auto found = std::ranges::find_if(Names<Enum>::all,
                                            [&](const auto& pair) { return name == pair.first; });
    if (found == std::end(Names<Enum>::all)) return false;
    value = found->second;
    return true;
  }
  static pybind11::handle cast(Enum value, pybind11::return_value_policy, pybind11::handle) {
    const auto found =
        std::ranges::find(Names<Enum>::all, value, &std::pair<const char*, Enum>::second);
    return pybind11::str(found->first).release();
  }
};

}  // namespace pinfeed::bindings
