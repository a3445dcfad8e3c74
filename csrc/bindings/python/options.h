// Options of native calls: structs whose members are keywords of their constructors in Python,
// where fields create them once. They can be pickled and have a repr.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bindings/python/imported.h"

namespace pinfeed::bindings {

// The name of a data member: the compiler's name of this function ends in "Member =
// &Options::name]". Never destroyed, like all globals.
template <auto Member>
const char* member_name() {
  static const auto* const name = [](std::string_view function) {
    function.remove_prefix(function.find("Member = "));
    const std::size_t end = function.find_first_of(";]");
    const std::size_t begin = function.rfind(':', end) + 1;
    return new std::string(function.substr(begin, end - begin));
  }(__PRETTY_FUNCTION__);
  return name->c_str();
}

// Without pybind11's metaclass, which is only for static attributes; the stub has none either.
template <class Type, class... Holder>
pybind11::class_<Type, Holder...> bind_class(pybind11::module_& m, const char* name) {
  return {m, name, pybind11::metaclass(reinterpret_cast<PyObject*>(&PyType_Type))};
}

// The struct in a bound class. Null for an object of another type.
template <class Type>
const Type* held_in(pybind11::handle object) {
  // pybind11's isinstance searches for the class in each call.
  const auto& type = once([] { return pybind11::type::of<Type>(); });
  auto* const expected = reinterpret_cast<PyTypeObject*>(type.ptr());
  if (!object || !PyObject_TypeCheck(object.ptr(), expected)) return nullptr;
  return object.cast<const Type*>();
}

// Specialized for options whose numbers size or index memory: throws ValueError for invalid
// numbers. Options are immutable, so this covers unpickled ones too.
template <class Options>
struct Checks {
  static void check(const Options&) {}
};

// Binds a struct as a class. `Members`: all of them, in order.
template <class Options, auto... Members>
pybind11::class_<Options> bind_options(pybind11::module_& m, const char* name) {
  namespace py = pybind11;
  const Options defaults{};
  py::class_<Options> bound = bind_class<Options>(m, name);
  bound.def(py::init([](std::remove_cvref_t<decltype(defaults.*Members)>... values) {
              Options options{};
              ((options.*Members = std::move(values)), ...);
              Checks<Options>::check(options);
              return options;
            }),
            py::kw_only(), (py::arg(member_name<Members>()) = defaults.*Members)...);
  bound.def("__repr__", [name](const Options& self) {
    py::list parts;
    (parts.append(py::str("{}={!r}").format(member_name<Members>(), self.*Members)), ...);
    return py::str("{}({})").format(name, py::str(", ").attr("join")(parts));
  });
  bound.def(py::pickle(
      [](const Options& self) { return py::make_tuple(self.*Members...); },
      [](const py::tuple& state) {
        Options options{};
        std::size_t i = 0;
        ((options.*Members = state[i++].cast<std::remove_cvref_t<decltype(options.*Members)>>()),
         ...);
        Checks<Options>::check(options);
        return options;
      }));
  return bound;
}

// The names of an enum's values, as pairs in an array `all`. In Python they are strings.
template <class Enum>
struct Names;

}  // namespace pinfeed::bindings

namespace pybind11::detail {

template <class Enum>
using IfNamed = std::void_t<decltype(pinfeed::bindings::Names<Enum>::all)>;

template <class Enum>
// replaces pybind11's own
struct type_caster_enum_type_enabled<Enum, IfNamed<Enum>> : std::false_type {};

template <class Enum>
class type_caster<Enum, IfNamed<Enum>> {
  static constexpr auto& kNames = pinfeed::bindings::Names<Enum>::all;

 public:
  PYBIND11_TYPE_CASTER(Enum, const_name("str"));

  bool load(handle source, bool) {
    if (!isinstance<str>(source)) return false;
    const auto name = source.cast<std::string>();
    const auto found =
        std::ranges::find_if(kNames, [&](const auto& pair) { return name == pair.first; });
    if (found == std::end(kNames)) return false;
    value = found->second;
    return true;
  }
  static handle cast(Enum value, return_value_policy, handle) {
    return str(std::ranges::find(kNames, value, &std::pair<const char*, Enum>::second)->first)
        .release();
  }
};

}  // namespace pybind11::detail
