// _core.pad: pads samples of different sizes to one batch, with lengths and masks.
#include "kernels/pad.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/options.h"
#include "bindings/python/output.h"
#include "bindings/python/parallel.h"
#include "bindings/python/samples.h"
#include "bindings/python/scalar_types.h"
#include "dispatch/dispatch.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using AxisList = std::vector<std::int64_t>;

// The keywords of pinfeed.functional.pad.
struct PadOptions {
  py::object value = py::none();
  std::optional<AxisList> axes;  // axes that may differ; unset: all, with lengths along axis 0
  bool one_axis = true;          // lengths have no axis of their own
  std::string side;
  std::optional<std::int64_t> max_length;
  AxisList multiple_of;              // one per chosen axis
  std::optional<std::string> dtype;  // unset: the samples' dtype
  Scale scale;

  bool is_left() const { return side == "left"; }
};

}  // namespace

template <>
struct Checks<PadOptions> {
  static void check(const PadOptions& options) {
    const std::size_t axes = options.axes ? options.axes->size() : 1;
    const auto refuse = [](const char* what) { throw wrong_value(Subject{"PadOptions"}, what); };
    if (axes == 0) refuse("axes must not be empty");
    if (options.one_axis && axes != 1) refuse("one_axis is for a single axis");
    if (options.max_length.value_or(0) < 0) refuse("max_length must not be negative");
    if (options.multiple_of.size() != axes) refuse("multiple_of must have one number per axis");
    if (*std::ranges::min_element(options.multiple_of) < 1) refuse("multiple_of must be positive");
  }
};

namespace {

std::string axes_text(const AxisList& axes) {
  return axes.size() == 1 ? "axes=" + std::to_string(axes[0]) : "axes=" + shape_text(axes);
}

// The axes that lengths, masks, max_length and multiple_of refer to, in order.
AxisList chosen_axes(const PadOptions& options, std::size_t count, const std::string& name) {
  const auto rank = static_cast<std::int64_t>(count);
  AxisList axes = options.axes.value_or(AxisList{0});
  for (std::int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) {
      throw wrong_value(Subject{name}, axes_text(*options.axes) + " must name axes of " +
                                           std::to_string(rank) + "-D samples");
    }
    if (axis < 0) axis += rank;
  }
  for (std::size_t i = 1; i < axes.size(); ++i) {
    if (axes[i] <= axes[i - 1]) {
      throw wrong_value(Subject{name},
                        "axes must be in order, each once, got " + shape_text(*options.axes));
    }
  }
  return axes;
}

// The box of each sample, and the chosen axes.
struct Boxes {
  // Truncates the samples to max_length.
  Boxes(Samples& samples, const PadOptions& options, const std::string& name)
      : axes(chosen_axes(options, samples.axes(), name)) {
    const std::size_t count = samples.axes();
    box.assign(samples.shape().begin(), samples.shape().end());
    for (std::size_t axis = 0; axis < count; ++axis) {
      const auto chosen = std::ranges::find(axes, axis);
      if (chosen != axes.end()) {
        set_chosen(samples, axis, options.multiple_of[chosen - axes.begin()], options, name);
      } else {
        set_other(samples, axis, options, name);
      }
    }
  }

  // Grows the box to a given output, which may be longer along the chosen axes.
  void widen(const ArrayView& out) {
    if (out.axes() != box.size() + 1) return;
    for (const std::int64_t axis : axes) box[axis] = std::max(box[axis], out.shape[axis + 1]);
  }

  Shape mask_box() const {
    Shape sizes;
    for (const std::int64_t axis : axes) sizes.push_back(box[axis]);
    return sizes;
  }

  AxisList axes;  // the chosen axes
  Shape box;
  std::optional<std::size_t> stray_axis;  // an axis that is not chosen, yet differs

 private:
  void set_chosen(Samples& samples, std::size_t axis, std::int64_t multiple,
                  const PadOptions& options, const std::string& name) {
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < samples.count(); ++i) {
      const std::int64_t size = samples.shape(i)[axis];
      if (options.max_length && size > *options.max_length) {
        samples.keep(i, axis, *options.max_length, options.is_left());
      }
      longest = std::max(longest, samples.shape(i)[axis]);
    }
    // At least one multiple: a batch of empty samples has no shape of its own.
    if (multiple > 1) longest = std::max<std::int64_t>(longest, 1);
    box[axis] = rounded_up(longest, multiple, name);
  }

  void set_other(const Samples& samples, std::size_t axis, const PadOptions& options,
                 const std::string& name) {
    for (std::size_t i = 1; i < samples.count(); ++i) {
      const std::int64_t size = samples.shape(i)[axis];
      if (size == samples.shape(0)[axis]) continue;
      if (options.axes) {
        throw wrong_value(Subject{name, static_cast<std::int64_t>(i)},
                          std::to_string(samples.shape(0)[axis]) + " items along axis " +
                              std::to_string(axis) + " as in sample 0",
                          std::to_string(size),
                          "only the axes in " + axes_text(axes) + " may differ");
      }
      stray_axis = axis;
      box[axis] = std::max(box[axis], size);
    }
  }
};

Shape batch_shape(std::size_t count, const Shape& box) {
  Shape shape = box;
  shape.insert(shape.begin(), static_cast<std::int64_t>(count));
  return shape;
}

// `reads`: reads the samples; null if they are in memory.
void write_boxes(std::span<const kernels::Sample> samples, FileReads* reads, const Shape& box,
                 const PadOptions& options, const kernels::Fill& fill, const Output& out,
                 bool streaming, std::size_t threads,
                 const kernels::Replacement* replaced = nullptr) {
  if (std::ranges::find(box, 0) != box.end()) return;
  const Shape inner = arrays::contiguous_strides(box, 1);
  const kernels::PadBatch batch{.samples = samples.data(),
                                .count = samples.size(),
                                .axes = box.size(),
                                .box = box.data(),
                                .inner = inner.data(),
                                .left = options.is_left(),
                                .fill = &fill,
                                .out = out.data,
                                .streaming = streaming,
                                .replaced = replaced};
  const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
  run_samples(
      reads, batch.count, batch.box_bytes(), threads,
      [&](std::size_t begin, std::size_t end) { kernels::pad_samples(batch, runs, begin, end); });
}

// The mask is ones, padded with zeros. `lengths`: of each sample, along each of the box's axes.
void write_mask(const Shape& lengths, const Shape& box, const PadOptions& options, DType dtype,
                const Output& out, std::size_t threads) {
  const Shape no_strides(box.size());
  // The longest length of a sample. Ones are kept, because large ones would be fresh memory each
  // time.
  thread_local std::vector<std::byte> ones;
  thread_local DType of = kBool;
  const std::size_t item = dtype.item_size();
  const std::size_t bytes = arrays::checked_bytes(box, item, "pad");
  if (ones.size() < bytes || !(of == dtype)) {
    ones.resize(bytes);
    fill_value(py::int_(1), dtype, "pad").write(ones.data(), bytes / item, false);
    of = dtype;
  }
  std::vector<kernels::Sample> samples;
  for (std::size_t i = 0; i < lengths.size(); i += box.size()) {
    samples.push_back({.data = ones.data(),
                       .shape = &lengths[i],
                       .strides = no_strides.data(),
                       .cast = {},
                       .contiguous = true});
  }
  write_boxes(samples, nullptr, box, options, kernels::Fill(item), out, false, threads);
}

Shape lengths_of(const Samples& samples, const AxisList& axes) {
  Shape lengths;
  lengths.reserve(samples.count() * axes.size());
  for (std::size_t i = 0; i < samples.count(); ++i) {
    for (const std::int64_t axis : axes) lengths.push_back(samples.shape(i)[axis]);
  }
  return lengths;
}

py::tuple pad(py::object source, py::object offsets, py::object indices, const PadOptions& options,
              py::object target, const std::string& function, std::size_t threads,
              const std::string& argument, bool with_lengths, const std::string& mask_dtype,
              const std::optional<std::pair<std::int64_t, std::int64_t>>& replaced) {
  const std::string name = named(function, argument);
  Samples samples(std::move(source), std::move(offsets), std::move(indices), name, Common::axes);
  const OutputRequest request(std::move(target), samples.is_tensor());
  Boxes boxes(samples, options, name);
  const bool with_mask = !mask_dtype.empty();
  if (with_mask && boxes.stray_axis) {
    const std::string stray = std::to_string(*boxes.stray_axis);
    throw wrong_value(
        Subject{name},
        "axis " + stray + " differs between samples, which a mask of axis 0 can't show", "",
        "name all axes that may differ: axes=(0, " + stray + ")");
  }
  if (request.is_given()) boxes.widen(view_array(request.target, Subject{function + ": out"}));

  const DType empty = PyFloat_Check(options.value.ptr()) ? kFloat32 : kInt64;
  const DType out_dtype =
      options.dtype ? dtype_named(*options.dtype, Subject{function}) : samples.common_dtype(empty);
  const kernels::Fill fill = fill_value(options.value, out_dtype, function + ": pad_value");
  const Shape shape = batch_shape(samples.count(), boxes.box);
  const std::size_t bytes = checked_bytes(shape, out_dtype, function);
  const bool streaming = worth_streaming(bytes) && !replaced;
  samples.plan_reads(may_not_fit(samples.dtype(0), out_dtype), threads);
  samples.prepare(out_dtype, options.scale, streaming, [&](std::size_t i) {
    return kernels::block_axis(samples.shape(i).data(), boxes.box.data(), samples.axes());
  });

  const OutputRequest elsewhere = request.elsewhere();
  const Output out = make_output(request, shape, out_dtype, function);
  if (request.is_given()) samples.require_apart(out, bytes, function);
  const Shape lengths = lengths_of(samples, boxes.axes);
  py::object lengths_array = py::none(), mask_array = py::none(), replaced_array = py::none();
  if (with_lengths) {
    const auto count = static_cast<std::int64_t>(samples.count());
    const auto columns = static_cast<std::int64_t>(boxes.axes.size());
    const Output written = make_output(
        elsewhere, options.one_axis ? Shape{count} : Shape{count, columns}, kInt64, function);
    std::ranges::copy(lengths, reinterpret_cast<std::int64_t*>(written.data));
    lengths_array = written.array;
  }
  if (with_mask) {
    const Shape box = boxes.mask_box();
    const Shape mask_shape = batch_shape(samples.count(), box);
    const DType dtype = dtype_named(mask_dtype, Subject{function});
    const Output written = make_output(elsewhere, mask_shape, dtype, function);
    write_mask(lengths, box, options, dtype, written, threads);
    mask_array = written.array;
  }
  std::optional<kernels::Replacement> replacement;
  if (replaced) {
    if (out_dtype != kInt64)
      throw wrong_value(Subject{function}, "replaced must be given for int64 only");
    const Output written = make_output(elsewhere, shape, out_dtype, function);
    replacement = {replaced->first, replaced->second, written.data};
    replaced_array = written.array;
  }
  write_boxes({samples.prepared(), samples.count()}, samples.reads(), boxes.box, options, fill, out,
              streaming, threads, replacement ? &*replacement : nullptr);
  samples.require_fit();
  return py::make_tuple(out.array, lengths_array, mask_array, replaced_array);
}

// Throws the error of padding with a value that does not fit.
void check_value(py::handle value, const std::string& dtype, const std::string& function,
                 const std::string& keyword) {
  fill_value(value, dtype_named(dtype, Subject{function}), function + ": " + keyword);
}

}  // namespace

void register_pad(py::module_& m) {
  m.def("check_value", &check_value, py::arg("value"), py::arg("dtype"), py::arg("function"),
        py::arg("keyword"));
  bind_options<PadOptions, &PadOptions::value, &PadOptions::axes, &PadOptions::one_axis,
               &PadOptions::side, &PadOptions::max_length, &PadOptions::multiple_of,
               &PadOptions::dtype, &PadOptions::scale>(m, "PadOptions");
  m.def("pad", &pad, py::arg("source"), py::arg("offsets"), py::arg("indices"), py::arg("options"),
        py::arg("target"), py::arg("name"), py::arg("threads"), py::arg("argument") = "",
        py::kw_only(), py::arg("lengths"), py::arg("mask"), py::arg("replaced") = py::none());
}

}  // namespace pinfeed::bindings
