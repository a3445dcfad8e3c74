// _core.gather, permute and stack: copies of values, possibly cast.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/file_array.h"
#include "bindings/python/mapped_file.h"
#include "bindings/python/number_lists.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/samples.h"
#include "bindings/python/scalar_types.h"
#include "bindings/python/torch_exchange.h"
#include "dispatch/dispatch.h"
#include "kernels/gather.h"
#include "kernels/lookahead.h"
#include "kernels/strided_copy.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// Plans the copies first, once for all threads.
void write_rows(const Samples& samples, const std::optional<Types>& types, std::size_t row_bytes,
                std::byte* out, bool streaming, std::size_t threads, const std::string& name) {
  const bool all_contiguous = samples.all_contiguous();
  if (!types && all_contiguous) {
    run_samples(samples.reads(), samples.count(), row_bytes, threads,
                [&](std::size_t begin, std::size_t end) {
                  kernels::gather_rows(samples.data(), row_bytes, out, begin, end, streaming);
                });
    return;
  }
  const std::size_t item_size = samples.dtype().item_size();
  const bool alike = all_contiguous || samples.have_one_layout();
  std::vector<kernels::StridedCopy> copies;
  const std::size_t plans = alike ? 1 : samples.count();
  copies.reserve(plans);
  for (std::size_t i = 0; i < plans; ++i) {
    copies.emplace_back(samples.shape().size(), samples.shape().data(), samples.strides(i),
                        item_size, types ? types->cast() : kernels::Cast{},
                        types ? types->to.item_size() : item_size);
  }
  const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
  bool fits = true;  // any thread may change it
  std::size_t source_bytes = item_size;
  for (const std::int64_t items : samples.shape()) source_bytes *= static_cast<std::size_t>(items);
  const auto memory_of = [&](std::size_t i) { return std::span(samples.data(i), source_bytes); };
  run_samples(
      samples.reads(), samples.count(), row_bytes, threads,
      [&](std::size_t begin, std::size_t end) {
        kernels::Lookahead ahead(begin, end, source_bytes);
        for (std::size_t i = begin; i < end; ++i) {
          ahead.before(i, memory_of);
          if (!copies[alike ? 0 : i].run(runs, samples.data(i), out + i * row_bytes, streaming)) {
            __atomic_store_n(&fits, false, __ATOMIC_RELAXED);
          }
        }
      });
  for (std::size_t i = 0; !fits && i < samples.count(); ++i) {
    require_integers_fit(samples.data(i), samples.shape(), samples.strides(i), *types,
                         Subject{name, static_cast<std::int64_t>(i)});
  }
}

// Reads rows to the output; returns false, without reading, if all can be copied from memory.
bool read_rows(FileReads& reads, std::byte* out, std::size_t threads) {
  {
    const Unlocked unlocked(!reads.seems_hot());
    if (reads.find_mapped()) return false;
  }
  const py::gil_scoped_release unlocked;
  reads.read_to(out, threads);
  return true;
}

py::object gather(py::object source, py::object indices, const std::optional<std::string>& dtype,
                  Scale scale, py::object target, const std::string& function, std::size_t threads,
                  const std::string& argument) {
  const std::string name = named(function, argument);
  Samples samples(std::move(source), py::none(), std::move(indices), name, Common::shape);
  std::optional<Types> types;
  if (dtype && (scale || *dtype != samples.dtype().name())) {
    types = find_types(samples.dtype(), *dtype, Subject{name}, scale);
  }
  const DType out_dtype = types ? types->to : samples.dtype();
  Shape shape{static_cast<std::int64_t>(samples.count())};
  shape.insert(shape.end(), samples.shape().begin(), samples.shape().end());
  const std::size_t bytes = checked_bytes(shape, out_dtype, function);
  const OutputRequest request(std::move(target), samples.is_tensor());
  const Output out = make_output(request, shape, out_dtype, function);
  if (request.is_given()) samples.require_apart(out, bytes, function);
  if (bytes == 0) return out.array;

  const std::size_t row_bytes = bytes / samples.count();
  const bool streaming = worth_streaming(bytes);
  if (FileReads* const reads = samples.open_reads()) {
    if (!types && samples.all_contiguous()) {
      if (read_rows(*reads, out.data, threads)) return out.array;
      samples.follow_reads();
    } else {
      // Rows that were read chunk by chunk have left memory when an integer does not fit.
      samples.plan_reads(types && may_not_fit(samples.dtype(), out_dtype), threads);
    }
  }
  write_rows(samples, types, row_bytes, out.data, streaming, threads, name);
  return out.array;
}

// Gathers the same rows of several arrays, in one crossing from Python. `keys`: the keys of a dict,
// or None for a list.
py::object gather_columns(const py::list& sources, const py::object& indices,
                          const py::object& target, const py::tuple& names, std::size_t threads,
                          const std::optional<py::tuple>& keys) {
  const py::tuple arrays(sources);  // another thread may change the list
  if (arrays.size() != names.size() || (keys && arrays.size() != keys->size())) {
    throw wrong_value(Subject{"gather_columns"}, std::to_string(arrays.size()) + " names and keys",
                      std::to_string(names.size()));
  }
  py::list batches(keys ? 0 : arrays.size());
  py::dict by_key;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto name = py::str(names[i]).cast<std::string>();
    py::object batch = gather(arrays[i], indices, std::nullopt, {}, target, name, threads, "");
    if (keys) {
      by_key[(*keys)[i]] = std::move(batch);
    } else {
      batches[i] = std::move(batch);
    }
  }
  if (keys) return by_key;
  return batches;
}

// int64, float64 or bool of shape (N,), from Python's numbers of one type. None for integers of
// more than 64 bits.
py::object stack_numbers(const py::tuple& numbers, const std::string& name) try {
  NumberLists lists(numbers.size());
  const Numbers read = lists.read(numbers, Subject{name});
  const Output out = make_output(OutputRequest(py::none(), true), {read.count}, read.dtype, name);
  std::copy_n(read.data, static_cast<std::size_t>(read.count) * read.dtype.item_size(), out.data);
  return out.array;
} catch (const Problem&) {
  return py::none();
}

// Whether torch.stack is faster, because it skips the validation of each tensor. Reused buffers and
// streaming stores win from these batch sizes on: of any tensors, and of large tensors.
bool are_small(const dlpack::Tensor& first, std::size_t samples) {
  constexpr std::size_t kLarge = std::size_t{8} << 20, kLargeOfLarge = std::size_t{256} << 10;
  constexpr std::size_t kLargeSample = std::size_t{32} << 10;
  std::size_t bytes = std::size_t{first.type.bits} * first.type.lanes / 8;
  for (std::int32_t i = 0; i < first.axes; ++i) bytes *= static_cast<std::size_t>(first.shape[i]);
  return bytes * samples < (bytes < kLargeSample ? kLarge : kLargeOfLarge);
}

// Stacks numbers of Python, CPU tensors, or ndarrays. None for other samples and for mixed ones,
// which only torch stacks.
py::object stack(const py::object& samples, const std::optional<std::string>& dtype, Scale scale,
                 py::object target, const std::string& name, std::size_t threads) {
  const py::tuple items(samples);  // another thread may change the list
  const py::object first = items[0];
  PyTypeObject* const type = Py_TYPE(first.ptr());
  const bool is_number = type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type;
  if (!is_number && !is_tensor_itself(first)) {
    if (!py::isinstance<py::array>(first)) return py::none();
    return gather(items, py::none(), dtype, scale, std::move(target), name, threads, "");
  }
  const auto is_alike = [&](py::handle item) { return Py_TYPE(item.ptr()) == type; };
  if ((is_number && dtype) || !std::ranges::all_of(items, is_alike)) return py::none();
  if (is_number) return stack_numbers(items, name);
  const std::optional<dlpack::Tensor> memory = find_memory(first);
  if (!memory) return py::none();
  if (!dtype && PyType_Check(target.ptr()) != 0 && are_small(*memory, items.size())) {
    try {
      return once([] { return imported("torch", "stack"); })(items);
    } catch (py::error_already_set& error) {  // gather raises a clearer one
      if (!error.matches(PyExc_RuntimeError) && !error.matches(PyExc_TypeError)) throw;
    }
  }
  return gather(items, py::none(), dtype, scale, std::move(target), name, threads, "");
}

py::object permute(const py::object& array, const std::vector<std::size_t>& axes, py::object target,
                   const std::string& function, std::size_t threads, const std::string& argument) {
  const std::string name = named(function, argument);
  const ArrayView view = view_array(array, Subject{name});
  MappedFiles().check(array);
  if (view.axes() != axes.size()) {
    throw wrong_value({name}, std::to_string(axes.size()) + " axes",
                      "shape " + shape_text(view.shape));
  }
  Shape shape(axes.size()), strides(axes.size());
  std::vector<bool> is_taken(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] >= axes.size() || is_taken[axes[i]]) {
      throw wrong_value({name}, "axes must name each axis of the array once");
    }
    is_taken[axes[i]] = true;
    shape[i] = view.shape[axes[i]];
    strides[i] = view.stride(axes[i]);
  }
  const std::size_t bytes = checked_bytes(shape, view.dtype, function);
  const Output out =
      make_output(OutputRequest{std::move(target), view.is_tensor}, shape, view.dtype, function);
  check_no_overlap(out, bytes, view, function);
  if (bytes == 0) return out.array;
  const kernels::StridedCopy copy(shape.size(), shape.data(), strides.data(),
                                  view.dtype.item_size());
  run_rows(copy.rows(), copy.row_bytes(), threads, [&](std::size_t begin, std::size_t end) {
    copy.run(*dispatch::active_isa().permute, view.data, out.data, begin, end,
             worth_streaming(bytes));
  });
  return out.array;
}

}  // namespace

void register_copies(py::module_& m) {
  m.def("gather", &gather, py::arg("source"), py::arg("indices"), py::arg("dtype"),
        py::arg("scale"), py::arg("target"), py::arg("name"), py::arg("threads"),
        py::arg("argument") = "");
  m.def("gather_columns", &gather_columns, py::arg("sources"), py::arg("indices"),
        py::arg("target"), py::arg("names"), py::arg("threads"), py::arg("keys"));
  m.def("stack", &stack, py::arg("samples"), py::arg("dtype"), py::arg("scale"), py::arg("target"),
        py::arg("name"), py::arg("threads"));
  m.def("permute", &permute, py::arg("array"), py::arg("axes"), py::arg("target"), py::arg("name"),
        py::arg("threads"), py::arg("argument") = "");
}

}  // namespace pinfeed::bindings
