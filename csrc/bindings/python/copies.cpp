// _core.gather and _core.permute: bytes moved, not changed.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <numeric>
#include <string>
#include <vector>

#include "bindings/python/module.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/samples.h"
#include "dispatch/dispatch.h"
#include "kernels/gather.h"
#include "kernels/strided_copy.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

py::object gather(py::object source, py::object indices, py::object target, py::object as_tensor,
                  const std::string& function, const std::string& name, std::size_t threads) {
  const Samples samples(std::move(source), std::move(indices), name);
  Shape shape{static_cast<std::int64_t>(samples.count())};
  shape.insert(shape.end(), samples.shape().begin(), samples.shape().end());
  const std::size_t bytes = checked_bytes(shape, samples.dtype(), function);
  const OutputRequest request{std::move(target),
                              as_tensor.is_none() ? samples.is_tensor() : as_tensor.cast<bool>()};
  const Output out = make_output(request, shape, samples.dtype(), function);
  for (const ArrayView& view : samples.sources()) check_no_overlap(out, bytes, view, function);
  if (bytes == 0) return out.array;

  const std::size_t row_bytes = bytes / samples.count();
  const bool streaming = worth_streaming(bytes);
  run_rows(samples.count(), row_bytes, threads, [&](std::size_t begin, std::size_t end) {
    if (samples.all_contiguous()) {
      kernels::gather_rows(samples.data(), row_bytes, out.data, streaming, begin, end);
      return;
    }
    for (std::size_t i = begin; i < end; ++i) {
      const Shape strides = samples.byte_strides(i);
      const kernels::StridedCopy copy(samples.data()[i], samples.shape().size(),
                                      samples.shape().data(), strides.data(),
                                      samples.dtype().item_size(), out.data + i * row_bytes);
      copy.run(*dispatch::active_isa().permute, 0, copy.rows(), streaming);
    }
  });
  return out.array;
}

py::object permute(py::object array, const std::vector<std::size_t>& axes, py::object target,
                   const std::string& function, const std::string& name, std::size_t threads) {
  const ArrayView view = view_array(array, Subject{name});
  if (view.axes() != axes.size()) {
    throw py::value_error(name + ": expected " + std::to_string(axes.size()) + " axes, got shape " +
                          shape_text(view.shape));
  }
  Shape shape(axes.size()), strides(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    shape[i] = view.shape[axes[i]];
    strides[i] = view.stride(axes[i]);
  }
  const std::size_t bytes = checked_bytes(shape, view.dtype, function);
  const Output out =
      make_output(OutputRequest{std::move(target), view.is_tensor}, shape, view.dtype, function);
  check_no_overlap(out, bytes, view, function);
  if (bytes == 0) return out.array;
  const kernels::StridedCopy copy(view.data, shape.size(), shape.data(), strides.data(),
                                  view.dtype.item_size(), out.data);
  run_rows(copy.rows(), copy.row_bytes(), threads, [&](std::size_t begin, std::size_t end) {
    copy.run(*dispatch::active_isa().permute, begin, end, worth_streaming(bytes));
  });
  return out.array;
}

}  // namespace

void register_copies(py::module_& m) {
  m.def("gather", &gather, py::arg("source"), py::arg("indices"), py::arg("target"),
        py::arg("as_tensor"), py::arg("function"), py::arg("name"), py::arg("threads"));
  m.def("permute", &permute, py::arg("array"), py::arg("axes"), py::arg("target"),
        py::arg("function"), py::arg("name"), py::arg("threads"));
}

}  // namespace pinfeed::bindings
