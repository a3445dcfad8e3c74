#include "bindings/python/part_arrays.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <utility>

#include "bindings/python/mapped_file.h"
#include "bindings/python/options.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

bool same_row_strides(const ArrayView& a, const ArrayView& b) {
  for (std::size_t axis = 1; axis < a.axes(); ++axis) {
    if (a.stride(axis) != b.stride(axis)) return false;
  }
  return true;
}

py::tuple own_views(const py::tuple& arrays) {
  py::tuple views(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    py::object array = arrays[i];
    if (py::isinstance<py::array>(array)) array = array.attr("view")();
    views[i] = std::move(array);
  }
  return views;
}

}  // namespace

PartArrays::PartArrays(py::tuple given, py::object given_offsets)
    : arrays(std::move(given)), offset_arrays(std::move(given_offsets)) {
  const std::string name = "PartArrays: part";
  if (arrays.empty()) throw wrong_value({"PartArrays"}, "at least one part", "none");
  const bool ragged = !offset_arrays.is_none();
  if (ragged && py::len(offset_arrays) != arrays.size()) {
    throw wrong_value({"PartArrays"}, "expected offsets for each part");
  }
  // The views outlive this call, so they refer to objects of our own, whose shapes nobody else can
  // set.
  arrays = own_views(arrays);
  if (ragged) offset_arrays = own_views(py::tuple(offset_arrays));
  std::int64_t end = 0;
  std::vector<std::int64_t> all_ends;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ArrayView view = view_array(PyTuple_GET_ITEM(arrays.ptr(), i), Subject{name});
    const std::string part = name + " " + std::to_string(i);
    if (view.axes() == 0) throw wrong_value({part}, "an axis that counts samples", "a 0-d array");
    if (i > 0 && (view.dtype != views[0].dtype || view.is_tensor != views[0].is_tensor)) {
      throw wrong_type({part}, views[0].dtype.name() + " like part 0", view.dtype.name());
    }
    if (i > 0 && !std::ranges::equal(view.shape.subspan(1), views[0].shape.subspan(1))) {
      throw wrong_value({part}, "rows of the shape of part 0", shape_text(view.shape));
    }
    same_strides = same_strides && (i == 0 || same_row_strides(view, views[0]));
    if (ragged) offsets.emplace_back(PyTuple_GET_ITEM(offset_arrays.ptr(), i), part);
    end += ragged ? offsets.back().samples() : view.shape[0];
    views.push_back(view);
    all_ends.push_back(end);
  }
  ends = runtime::PartEnds(std::move(all_ends));
}

void PartArrays::check_files(std::size_t part, MappedFiles& files) const {
  const auto index = static_cast<py::ssize_t>(part);
  files.check(PyTuple_GET_ITEM(arrays.ptr(), index));
  if (!offsets.empty()) files.check(PyTuple_GET_ITEM(offset_arrays.ptr(), index));
}

void register_part_arrays(py::module_& m) {
  bind_class<PartArrays>(m, "PartArrays")
      .def(py::init<py::tuple, py::object>(), py::arg("arrays"), py::arg("offsets") = py::none());
}

}  // namespace pinfeed::bindings
