// _core.join: samples of different lengths, one right after the other.
#include "kernels/join.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/module.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/sample_batch.h"
#include "bindings/python/scalar_types.h"
#include "bindings/python/sequences.h"
#include "dispatch/dispatch.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using Lengths = py::array_t<std::int64_t, py::array::c_style>;

// Cuts padded rows back to their data.
void shorten(Sequences& sequences, const Lengths& lengths, bool left, const std::string& name) {
  if (lengths.ndim() != 1 || lengths.size() != static_cast<py::ssize_t>(sequences.count())) {
    throw py::value_error(name + ": expected a length for each of the " +
                          std::to_string(sequences.count()) + " samples, got " +
                          std::to_string(lengths.size()));
  }
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    const std::int64_t length = lengths.data()[i], size = sequences.shape(i)[0];
    if (length < 0 || length > size) {
      throw py::value_error(name + ": lengths must be from 0 to " + std::to_string(size) +
                            ", got " + std::to_string(length) + " at position " +
                            std::to_string(i));
    }
    sequences.keep(i, 0, length, left);
  }
}

void cut(Sequences& sequences, std::int64_t max_length, bool left) {
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    if (sequences.shape(i)[0] > max_length) sequences.keep(i, 0, max_length, left);
  }
}

py::tuple join(py::object source, py::object offsets, py::object indices,
               const std::optional<Lengths>& lengths, const std::string& side,
               const std::optional<std::string>& dtype, py::object target, py::object as_tensor,
               const std::string& function, const std::string& name, std::size_t threads,
               std::optional<std::int64_t> max_length, Scale scale) {
  Sequences sequences(std::move(source), std::move(offsets), std::move(indices), name);
  if (lengths) shorten(sequences, *lengths, side == "left", name);
  if (max_length) cut(sequences, *max_length, side == "left");
  sequences.require_same_rows();
  const DType out_dtype =
      dtype ? dtype_named(*dtype, function)
            : dtype_named(sequences.common_dtype(kInt64).name(), Subject{name, 0}.text());

  const std::size_t count = sequences.count();
  Shape starts(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    if (__builtin_add_overflow(starts[i], sequences.shape(i)[0], &starts[i + 1])) {
      throw py::value_error(name + ": the samples together are larger than memory can be");
    }
  }
  Shape shape(sequences.shape(0), sequences.shape(0) + sequences.axes());
  shape[0] = starts.back();
  const std::size_t bytes = checked_bytes(shape, out_dtype, function);
  const bool streaming = worth_streaming(bytes);
  sequences.plan_reads(may_not_fit(sequences.dtype(0), out_dtype), threads);
  const SampleBatch samples(sequences, out_dtype, scale, streaming,
                            [](std::size_t) { return std::size_t{0}; });

  const bool tensors = as_tensor.is_none() ? sequences.as_tensor() : as_tensor.cast<bool>();
  if (!tensors) require_numpy_has(out_dtype, function);
  const OutputRequest request{std::move(target), tensors};
  const Output out = make_output(request, shape, out_dtype, function);
  const Output written =
      make_output(request, Shape{static_cast<std::int64_t>(count) + 1}, kInt64, function);
  std::copy(starts.begin(), starts.end(), reinterpret_cast<std::int64_t*>(written.data));
  if (bytes > 0) {
    std::size_t row_items = 1;
    for (std::size_t axis = 1; axis < shape.size(); ++axis) row_items *= shape[axis];
    const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
    run_samples(
        sequences.reads(), count, bytes / count, threads, [&](std::size_t begin, std::size_t end) {
          kernels::join_samples(samples.samples(), starts.data(), row_items, out_dtype.item_size(),
                                runs, out.data, streaming, begin, end);
        });
  }
  samples.require_fit(name);
  return py::make_tuple(out.array, written.array);
}

}  // namespace

void register_join(py::module_& m) {
  m.def("join", &join, py::arg("source"), py::arg("offsets"), py::arg("indices"),
        py::arg("lengths"), py::arg("side"), py::arg("dtype"), py::arg("target"),
        py::arg("as_tensor"), py::arg("function"), py::arg("name"), py::arg("threads"),
        py::arg("max_length") = py::none(), py::arg("scale") = py::none());
}

}  // namespace pinfeed::bindings
