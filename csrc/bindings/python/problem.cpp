#include "bindings/python/problem.h"

#include "bindings/python/imported.h"

namespace py = pybind11;

namespace pinfeed::bindings {

void Problem::raise() const {
  const py::object words = once([] { return imported("pinfeed.arguments", "Problem"); });
  const py::object sample = sample_ < 0 ? py::none() : py::object(py::int_(sample_));
  const py::object problem = words(name_, expected_, got_, hint_, sample, differs_);
  PyErr_SetObject(type_, problem.ptr());
}

void register_problem(py::module_& m) {
  static_cast<void>(m);
  py::register_local_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const Problem& problem) {
      problem.raise();
    } catch (const py::cast_error& error) {
      // A plan or a pickled state may contain objects of any type.
      py::set_error(PyExc_TypeError, error.what());
    }
  });
}

}  // namespace pinfeed::bindings
