// _core.join: samples of different lengths, one right after the other.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/module.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/samples.h"
#include "bindings/python/scalar_types.h"
#include "dispatch/dispatch.h"
#include "kernels/pack.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using Lengths = py::array_t<std::int64_t, py::array::c_style>;

// Cuts padded rows back to their data.
void shorten(Samples& samples, const Lengths& lengths, bool left, const std::string& name) {
  if (lengths.ndim() != 1 || lengths.size() != static_cast<py::ssize_t>(samples.count())) {
    throw py::value_error(name + ": expected a length for each of the " +
                          std::to_string(samples.count()) + " samples, got " +
                          std::to_string(lengths.size()));
  }
  for (std::size_t i = 0; i < samples.count(); ++i) {
    const std::int64_t length = lengths.data()[i], size = samples.shape(i)[0];
    if (length < 0 || length > size) {
      throw py::value_error(name + ": lengths must be from 0 to " + std::to_string(size) +
                            ", got " + std::to_string(length) + " at position " +
                            std::to_string(i));
    }
    samples.keep(i, 0, length, left);
  }
}

void cut(Samples& samples, std::int64_t max_length, bool left) {
  for (std::size_t i = 0; i < samples.count(); ++i) {
    if (samples.shape(i)[0] > max_length) samples.keep(i, 0, max_length, left);
  }
}

py::tuple join(py::object source, py::object offsets, py::object indices, py::object target,
               const std::string& function, std::size_t threads, const std::string& side,
               std::optional<std::int64_t> max_length, const std::optional<std::string>& dtype,
               Scale scale, const std::optional<Lengths>& lengths, const std::string& argument) {
  const std::string name = named(function, argument);
  Samples samples(std::move(source), std::move(offsets), std::move(indices), name, Common::axes);
  if (lengths) shorten(samples, *lengths, side == "left", name);
  if (max_length) cut(samples, *max_length, side == "left");
  samples.require_same_rows();
  const DType out_dtype = dtype
                              ? dtype_named(*dtype, Subject{function})
                              : dtype_named(samples.common_dtype(kInt64).name(), Subject{name, 0});

  const std::size_t count = samples.count();
  std::vector<kernels::Segment> segments(count);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t begin = total, length = samples.shape(i)[0];
    if (__builtin_add_overflow(begin, length, &total)) {
      throw py::value_error(name + ": the samples together are larger than memory can be");
    }
    segments[i] = {.begin = begin, .data = length, .end = total, .number = 0};
  }
  Shape shape(samples.shape().begin(), samples.shape().end());
  shape[0] = total;
  const std::size_t bytes = checked_bytes(shape, out_dtype, function);
  const bool streaming = worth_streaming(bytes);
  samples.plan_reads(may_not_fit(samples.dtype(0), out_dtype), threads);
  samples.prepare(out_dtype, scale, streaming, [](std::size_t) { return std::size_t{0}; });

  const OutputRequest request(std::move(target), samples.is_tensor());
  if (!request.as_tensor) require_numpy_has(out_dtype, function);
  const Output out = make_output(request, shape, out_dtype, function);
  const Output written =
      make_output(request, Shape{static_cast<std::int64_t>(count) + 1}, kInt64, function);
  auto* const starts = reinterpret_cast<std::int64_t*>(written.data);
  for (std::size_t i = 0; i < count; ++i) starts[i] = segments[i].begin;
  starts[count] = total;
  if (bytes > 0) {
    std::size_t row_items = 1;
    for (std::size_t axis = 1; axis < shape.size(); ++axis) row_items *= shape[axis];
    const kernels::Fill no_gaps(out_dtype.item_size());
    const kernels::PackBatch batch{.samples = samples.prepared(),
                                   .segments = segments.data(),
                                   .count = count,
                                   .places = total,
                                   .row_items = row_items,
                                   .fill = &no_gaps,
                                   .first = nullptr,
                                   .out = out.data,
                                   .streaming = streaming};
    const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
    run_samples(samples.reads(), count, bytes / count, threads,
                [&](std::size_t begin, std::size_t end) {
                  kernels::pack_samples(batch, runs, begin, end);
                });
  }
  samples.require_fit();
  return py::make_tuple(out.array, written.array);
}

}  // namespace

void register_join(py::module_& m) {
  m.def("join", &join, py::arg("source"), py::arg("offsets"), py::arg("indices"), py::arg("target"),
        py::arg("name"), py::arg("threads"), py::kw_only(), py::arg("side") = "right",
        py::arg("max_length") = py::none(), py::arg("dtype") = py::none(),
        py::arg("scale") = py::none(), py::arg("lengths") = py::none(), py::arg("argument") = "");
}

}  // namespace pinfeed::bindings
