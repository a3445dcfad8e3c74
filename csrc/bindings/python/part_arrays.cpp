#include "bindings/python/part_arrays.h"

#include <algorithm>
#include <string>
#include <utility>

#include "bindings/python/module.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

bool same_rows(const ArrayView& a, const ArrayView& b) {
  if (!std::ranges::equal(a.shape.subspan(1), b.shape.subspan(1))) return false;
  for (std::size_t axis = 1; axis < a.axes(); ++axis) {
    if (a.stride(axis) != b.stride(axis)) return false;
  }
  return true;
}

}  // namespace

PartArrays::PartArrays(py::tuple given) : arrays(std::move(given)) {
  const std::string name = "PartArrays: part";
  if (arrays.empty()) throw py::value_error("PartArrays: expected at least one part, got none");
  std::int64_t end = 0;
  std::vector<std::int64_t> all_ends;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ArrayView view = view_array(PyTuple_GET_ITEM(arrays.ptr(), i), Subject{name});
    const std::string part = name + " " + std::to_string(i);
    if (view.axes() == 0) throw py::value_error(part + ": got a 0-d array");
    if (i > 0 && (view.dtype != views[0].dtype || view.is_tensor != views[0].is_tensor)) {
      throw py::type_error(part + ": expected " + views[0].dtype.name() + " like part 0, got " +
                           view.dtype.name());
    }
    if (i > 0 && !same_rows(view, views[0])) {
      throw py::value_error(part + ": expected rows of the shape and strides of part 0, got " +
                            shape_text(view.shape));
    }
    end += view.shape[0];
    views.push_back(view);
    all_ends.push_back(end);
  }
  ends = PartEnds(std::move(all_ends));
}

const PartArrays* PartArrays::in(py::handle object) {
  return object && py::isinstance<PartArrays>(object) ? object.cast<const PartArrays*>() : nullptr;
}

void register_part_arrays(py::module_& m) {
  // A plain type: there is nothing static to assign to.
  py::class_<PartArrays>(m, "PartArrays", py::metaclass(reinterpret_cast<PyObject*>(&PyType_Type)))
      .def(py::init<py::tuple>(), py::arg("arrays"));
}

}  // namespace pinfeed::bindings
