// _core.join: concatenates samples of different lengths; and _core.pack: documents in rows of one
// length, with the ids and positions that a model needs.
#include "kernels/pack.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
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

using Numbers64 = py::array_t<std::int64_t, py::array::c_style>;
using Lengths = py::array_t<std::int64_t, py::array::c_style>;
using kernels::Segment;

// Concatenates samples, `bytes` in all, with the fill between each and the next. `first` replaces
// the first token of each, if it is not null.
void write_samples(const Samples& samples, const std::vector<Segment>& segments,
                   std::int64_t tokens, const kernels::Fill& fill, const kernels::Fill* first,
                   const Output& out, std::size_t bytes, std::size_t threads) {
  if (bytes == 0) return;
  std::size_t row_items = 1;
  for (const std::int64_t size : samples.shape().subspan(1)) row_items *= size;
  const kernels::PackBatch batch{.samples = samples.prepared(),
                                 .segments = segments.data(),
                                 .count = samples.count(),
                                 .tokens = tokens,
                                 .row_items = row_items,
                                 .fill = &fill,
                                 .first = first,
                                 .out = out.data,
                                 .streaming = worth_streaming(bytes)};
  const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
  run_samples(
      samples.reads(), batch.count, bytes / batch.count, threads,
      [&](std::size_t begin, std::size_t end) { kernels::pack_samples(batch, runs, begin, end); });
}

// Truncates padded rows to their data.
void shorten(Samples& samples, const Lengths& lengths, bool left, const std::string& name) {
  if (lengths.ndim() != 1 || lengths.size() != static_cast<py::ssize_t>(samples.count())) {
    throw wrong_value({name},
                      "a length for each of the " + std::to_string(samples.count()) + " samples",
                      std::to_string(lengths.size()));
  }
  for (std::size_t i = 0; i < samples.count(); ++i) {
    const std::int64_t length = lengths.data()[i], size = samples.shape(i)[0];
    if (length < 0 || length > size) {
      throw wrong_value({name}, "lengths must be from 0 to " + std::to_string(size) + ", got " +
                                    std::to_string(length) + " at position " + std::to_string(i));
    }
    samples.keep(i, 0, length, left);
  }
}

py::tuple join(py::object source, py::object offsets, py::object indices, py::object target,
               const std::string& function, std::size_t threads, const std::string& side,
               std::optional<std::int64_t> max_length, const std::optional<std::string>& dtype,
               Scale scale, const std::optional<Lengths>& lengths, const std::string& argument) {
  const std::string name = named(function, argument);
  Samples samples(std::move(source), std::move(offsets), std::move(indices), name, Common::axes);
  if (max_length && *max_length < 0) {
    throw wrong_value({name},
                      "max_length must not be negative, got " + std::to_string(*max_length));
  }
  if (lengths) shorten(samples, *lengths, side == "left", name);
  for (std::size_t i = 0; max_length && i < samples.count(); ++i) {
    if (samples.shape(i)[0] > *max_length) samples.keep(i, 0, *max_length, side == "left");
  }
  samples.require_same_rows();
  const DType out_dtype =
      dtype ? dtype_named(*dtype, Subject{function}) : samples.common_dtype(kInt64);

  const std::size_t count = samples.count();
  std::vector<Segment> segments(count);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t begin = total, length = samples.shape(i)[0];
    if (__builtin_add_overflow(begin, length, &total)) {
      throw wrong_value({name}, "the samples together are too large for any memory");
    }
    segments[i] = {.begin = begin, .data = length, .end = total, .number = 0};
  }
  Shape shape(samples.shape().begin(), samples.shape().end());
  shape[0] = total;
  const std::size_t bytes = checked_bytes(shape, out_dtype, function);
  samples.plan_reads(may_not_fit(samples.dtype(0), out_dtype), threads);
  samples.prepare(out_dtype, scale, worth_streaming(bytes));

  const OutputRequest request(std::move(target), samples.is_tensor());
  const Output out = make_output(request, shape, out_dtype, function);
  const Output written =
      make_output(request, Shape{static_cast<std::int64_t>(count) + 1}, kInt64, function);
  auto* const starts = reinterpret_cast<std::int64_t*>(written.data);
  for (std::size_t i = 0; i < count; ++i) starts[i] = segments[i].begin;
  starts[count] = total;
  const kernels::Fill no_gaps(out_dtype.item_size());
  write_samples(samples, segments, total, no_gaps, nullptr, out, bytes, threads);
  samples.require_fit();
  return py::make_tuple(out.array, written.array);
}

// Returns a part of pinfeed.batches.Packing; throws TypeError if it has another type.
template <typename Part>
Part part_of(const py::object& packing, const char* part, const std::string& name) {
  const py::object value = packing.attr(part);
  try {
    return value.cast<Part>();
  } catch (const py::cast_error&) {
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
  }
  const std::string kind = std::is_same_v<Part, Numbers64> ? "int64 numbers" : "an integer";
  throw wrong_type({name}, kind + " for " + part + " of the batch's Packing",
                   py::type::handle_of(value).attr("__name__").cast<std::string>(),
                   "PackSampler makes one");
}

// The plan of documents in pinfeed.batches.Packing.
struct Packing {
  Numbers64 totals, starts, lengths, offsets;
  std::int64_t rows, seq_length, multiple_of;
  std::optional<std::int64_t> max_documents;

  Packing(const py::object& named, const std::string& name)
      : totals(part_of<Numbers64>(named, "totals", name)),
        starts(part_of<Numbers64>(named, "starts", name)),
        lengths(part_of<Numbers64>(named, "lengths", name)),
        offsets(part_of<Numbers64>(named, "offsets", name)),
        rows(part_of<std::int64_t>(named, "rows", name)),
        seq_length(part_of<std::int64_t>(named, "seq_length", name)),
        multiple_of(part_of<std::int64_t>(named, "multiple_of", name)),
        max_documents(part_of<std::optional<std::int64_t>>(named, "max_documents", name)) {}
};

// The options of pinfeed.Pack.
struct PackOptions {
  py::object fill = py::none();
  py::object first = py::none();
  std::optional<std::string> dtype;  // unset: the samples' dtype
  bool flat = false;                 // all rows in one
  std::int64_t position_start = 0;
  bool position_ids = false;  // further outputs
  bool document_ids = false;
  bool seq_idx = false;
  bool attention_mask = false;
  bool cu_seqlens = false;
};

Problem damaged_plan(const std::string& name) {
  return wrong_value({name}, "the batch's row plan is damaged", "", "create a new PackSampler");
}

// Cuts each document to its planned piece. Throws ValueError if a length differs from the plan's.
void cut(Samples& samples, const Packing& packing, const std::string& name) {
  for (const Numbers64* numbers :
       {&packing.totals, &packing.starts, &packing.lengths, &packing.offsets}) {
    if (numbers->size() != static_cast<py::ssize_t>(samples.count())) {
      throw wrong_value({name},
                        std::to_string(numbers->size()) + " samples as in PackSampler's batch",
                        std::to_string(samples.count()));
    }
  }
  for (std::size_t i = 0; i < samples.count(); ++i) {
    const std::int64_t size = samples.shape(i)[0];
    const std::int64_t start = packing.starts.data()[i], length = packing.lengths.data()[i];
    if (size != packing.totals.data()[i]) {
      throw wrong_value(
          Subject{name, static_cast<std::int64_t>(i)},
          std::to_string(packing.totals.data()[i]) + " tokens as in PackSampler(lengths)",
          std::to_string(size));
    }
    if (start < 0 || length < 0 || start > size || length > size - start) throw damaged_plan(name);
    if (start > 0) samples.keep(i, 0, size - start, true);
    if (length < size - start) samples.keep(i, 0, length, false);
  }
}

// The segments of the output: all documents first, then the padding of each row.
struct Layout {
  std::vector<Segment> segments;
  std::vector<std::int32_t> ends;  // of all segments in order, after a 0
  std::int64_t tokens = 0;
  std::int64_t longest = 0;

  void end_at(std::int64_t end) {
    longest = std::max(longest, end - ends.back());
    ends.push_back(static_cast<std::int32_t>(end));
  }
};

[[noreturn]] void too_many(const std::string& name) {
  throw wrong_value({name},
                    "a batch must have fewer than 2**31 tokens, because cu_seqlens is int32", "",
                    "make smaller batches");
}

Layout one_after_the_other(const Samples& samples, const std::string& name) {
  Layout layout;
  layout.ends.push_back(0);
  for (std::size_t i = 0; i < samples.count(); ++i) {
    const std::int64_t length = samples.shape(i)[0], begin = layout.tokens;
    if (length > std::numeric_limits<std::int32_t>::max() - begin) too_many(name);
    layout.tokens += length;
    layout.segments.push_back({begin, length, layout.tokens, static_cast<std::int32_t>(i)});
    layout.end_at(layout.tokens);
  }
  return layout;
}

// Samples have been cut to their pieces. `through`: number segments through all rows.
Layout in_rows(const Packing& packing, const Samples& samples, bool through,
               const std::string& name) {
  const std::size_t count = samples.count();
  Layout layout;
  const std::int64_t row_length = packing.seq_length, multiple = packing.multiple_of;
  if (packing.rows < 1 || row_length < 1 || multiple < 1 || multiple > row_length ||
      packing.rows > std::numeric_limits<std::int32_t>::max() / row_length) {
    too_many(name);
  }
  layout.tokens = packing.rows * row_length;
  layout.segments.reserve(count + static_cast<std::size_t>(packing.rows));
  layout.ends.push_back(0);
  std::vector<Segment> tails;
  std::int32_t number = 0;
  std::int64_t row = 0, end = 0;
  // Ends the current row, and rows up to `next`, with their padding.
  const auto finish_rows = [&](std::int64_t next) {
    for (; row < next; ++row) {
      const std::int64_t row_end = (row + 1) * row_length;
      if (end < row_end) {
        tails.push_back({end, 0, row_end, number++});
        layout.end_at(row_end);
        end = row_end;
      }
      if (!through) number = 0;
    }
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t begin = packing.offsets.data()[i], length = samples.shape(i)[0];
    if (begin < 0 || begin >= layout.tokens || length > row_length) throw damaged_plan(name);
    finish_rows(begin / row_length);
    const std::int64_t padded = rounded_up(length, multiple, name);
    if (begin != end || padded == 0 || padded > (row + 1) * row_length - begin)
      throw damaged_plan(name);
    end += padded;
    layout.segments.push_back({begin, length, end, number++});
    layout.end_at(end);
  }
  finish_rows(packing.rows);
  layout.segments.insert(layout.segments.end(), tails.begin(), tails.end());
  return layout;
}

// Rounded up, so that few sizes occur and compiled code is reused.
std::int64_t few_values(std::int64_t number) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(number)));
}

// The length of cu_seqlens. Throws ValueError if the plan has more documents than it claims.
std::int64_t ends_size(const Layout& layout, const std::optional<Packing>& packing,
                       const std::string& name) {
  const auto ends = static_cast<std::int64_t>(layout.ends.size());
  if (!packing) return ends;
  if (!packing->max_documents) return 1 + few_values(ends - 1);
  const std::int64_t max_documents = std::min(*packing->max_documents, packing->seq_length);
  const std::int64_t size = max_documents < 0 ? 0 : 1 + packing->rows * (1 + max_documents);
  if (size >= ends) return size;
  throw wrong_value({name},
                    "at most max_documents=" + std::to_string(*packing->max_documents) +
                        " documents in each of " + std::to_string(packing->rows) + " rows",
                    std::to_string(ends - 1), "create a new PackSampler");
}

// Returns the packed rows as "values", and the requested ids and positions under their names.
py::dict pack(py::object source, py::object offsets, py::object indices,
              const py::object& packing_or_none, const PackOptions& options, py::object target,
              const std::string& name, std::size_t threads) {
  Samples samples(std::move(source), std::move(offsets), std::move(indices), name, Common::axes);
  std::optional<Packing> packing;
  if (!packing_or_none.is_none()) {
    packing.emplace(packing_or_none, name);
    cut(samples, *packing, name);
  }
  samples.require_same_rows();
  const Layout layout =
      packing ? in_rows(*packing, samples, options.flat, name) : one_after_the_other(samples, name);
  if (options.position_start > std::numeric_limits<std::int64_t>::max() - layout.tokens) {
    throw wrong_value({name}, "a position_start for which all positions fit in int64",
                      std::to_string(options.position_start));
  }
  const std::int64_t cumulative = options.cu_seqlens ? ends_size(layout, packing, name) : 0;
  const bool rows = packing.has_value() && !options.flat;
  const Shape box =
      rows ? Shape{packing->rows, packing->seq_length} : Shape{std::int64_t{1}, layout.tokens};

  const DType empty = PyFloat_Check(options.fill.ptr()) ? kFloat32 : kInt64;
  const DType out_dtype =
      options.dtype ? dtype_named(*options.dtype, Subject{name}) : samples.common_dtype(empty);
  const kernels::Fill filling = fill_value(options.fill, out_dtype, name + ": pad_value");
  std::optional<kernels::Fill> beginning;
  if (!options.first.is_none())
    beginning = fill_value(options.first, out_dtype, name + ": first_token");

  Shape shape = box;
  shape.insert(shape.end(), samples.shape().begin() + 1, samples.shape().end());
  const std::size_t bytes = checked_bytes(shape, out_dtype, name);
  samples.plan_reads(may_not_fit(samples.dtype(0), out_dtype), threads);
  samples.prepare(out_dtype, std::nullopt, worth_streaming(bytes));
  const OutputRequest request(std::move(target), true);
  const Output out = make_output(request, shape, out_dtype, name);

  py::dict packed;
  packed["values"] = out.array;
  kernels::TokenOutputs outputs;
  outputs.position_start = options.position_start;
  std::size_t output_bytes = 0;
  const auto add_output = [&](bool is_wanted, DType of, const char* output, auto*& data) {
    if (!is_wanted) return;
    const Output written = make_output(request, box, of, name);
    packed[output] = written.array;
    data = reinterpret_cast<std::remove_reference_t<decltype(data)>>(written.data);
    output_bytes += of.item_size();
  };
  add_output(options.position_ids, kInt64, "position_ids", outputs.positions);
  add_output(options.document_ids, kInt32, "document_ids", outputs.documents);
  add_output(options.seq_idx, kInt32, "seq_idx", outputs.numbers);
  add_output(options.attention_mask, kBool, "attention_mask", outputs.attention);
  if (options.cu_seqlens) {
    const Output written = make_output(request, Shape{cumulative}, kInt32, name);
    auto* const ends = reinterpret_cast<std::int32_t*>(written.data);
    std::ranges::copy(layout.ends, ends);
    std::fill(ends + layout.ends.size(), ends + cumulative, layout.ends.back());
    packed["cu_seqlens"] = written.array;
  }

  write_samples(samples, layout.segments, layout.tokens, filling, beginning ? &*beginning : nullptr,
                out, bytes, threads);
  if (output_bytes > 0) {
    const std::size_t segments = layout.segments.size();
    run_rows(segments, output_bytes * static_cast<std::size_t>(layout.tokens) / segments, threads,
             [&](std::size_t begin, std::size_t end) {
               for (std::size_t i = begin; i < end; ++i) {
                 kernels::write_token_outputs(layout.segments[i], outputs);
               }
             });
  }
  samples.require_fit();
  packed["max_seqlen"] = packing && layout.longest > 0
                             ? std::min(few_values(layout.longest), packing->seq_length)
                             : layout.longest;
  return packed;
}

}  // namespace

void register_pack(py::module_& m) {
  m.def("join", &join, py::arg("source"), py::arg("offsets"), py::arg("indices"), py::arg("target"),
        py::arg("name"), py::arg("threads"), py::kw_only(), py::arg("side") = "right",
        py::arg("max_length") = py::none(), py::arg("dtype") = py::none(),
        py::arg("scale") = py::none(), py::arg("lengths") = py::none(), py::arg("argument") = "");
  bind_options<PackOptions, &PackOptions::fill, &PackOptions::first, &PackOptions::dtype,
               &PackOptions::flat, &PackOptions::position_start, &PackOptions::position_ids,
               &PackOptions::document_ids, &PackOptions::seq_idx, &PackOptions::attention_mask,
               &PackOptions::cu_seqlens>(m, "PackOptions");
  m.def("pack", &pack, py::arg("source"), py::arg("offsets"), py::arg("indices"),
        py::arg("packing"), py::arg("options"), py::arg("target"), py::arg("name"),
        py::arg("threads"));
}

}  // namespace pinfeed::bindings
