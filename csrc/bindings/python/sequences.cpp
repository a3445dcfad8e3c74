#include "bindings/python/sequences.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <optional>

#include "bindings/python/mapped_file.h"
#include "bindings/python/offsets.h"
#include "bindings/python/part_arrays.h"
#include "bindings/python/scalar_types.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using dlpack::TypeCode;

// Chosen samples are anywhere, and so are their offsets: these many are on their way at once.
constexpr std::size_t kAhead = 16;

// Whether a dtype holds all integers of [smallest, largest], rounded if it is floating.
bool holds(DType dtype, std::int64_t smallest, std::int64_t largest) {
  if (dtype.code == TypeCode::signed_int) {
    if (dtype.bits == 64) return true;
    const std::int64_t limit = std::int64_t{1} << (dtype.bits - 1);
    return -limit <= smallest && largest < limit;
  }
  if (dtype.code == TypeCode::unsigned_int) {
    return smallest >= 0 && (dtype.bits == 64 || largest < std::int64_t{1} << dtype.bits);
  }
  constexpr std::int64_t kMostInFloat16 = 65519;  // what is beyond rounds to infinity
  const bool half = dtype == kFloat16;
  return !half || (-kMostInFloat16 <= smallest && largest <= kMostInFloat16);
}

}  // namespace

Sequences::Sequences(py::object source, py::object offsets, py::object indices,
                     const std::string& name)
    : name_(name) {
  if (py::isinstance<py::list>(source) || py::isinstance<py::tuple>(source)) {
    // A tuple of our own: another thread may change the list while the GIL is released.
    owner_ = py::tuple(std::move(source));
    view_list();
  } else {
    owner_ = std::move(source);
    offsets_owner_ = std::move(offsets);
    view_rows(indices);
  }
  if (count() == 0) throw py::value_error(name_ + ": expected at least one sample, got none");
}

void Sequences::view_rows(const py::object& indices) {
  MappedFiles files;
  if (const PartArrays* const parts = PartArrays::in(owner_)) {
    PartFinder finder(*parts, files);
    return add_rows(
        parts->views[0], !parts->offsets.empty(), parts->ends.rows(), indices,
        [&](std::int64_t sample) {
          const auto [part, row] = finder.find(sample);
          finder.check(part);
          return Place{parts->views[part], parts->offsets.empty() ? nullptr : &parts->offsets[part],
                       row};
        },
        [&](std::int64_t sample) {
          if (parts->offsets.empty()) return;
          const auto [part, row] = finder.find(sample);
          parts->offsets[part].expect(row);
        });
  }
  if (const FileArray* const file = FileArray::in(owner_)) {
    file_owner_ = owner_;
    owner_ = file->array;
  }
  const ArrayView array = view_array(owner_, Subject{name_});
  files.check(owner_);
  std::optional<Offsets> offsets;
  if (!offsets_owner_.is_none()) {
    offsets.emplace(offsets_owner_, name_);
    files.check(offsets_owner_);
  }
  const Offsets* const cuts = offsets ? &*offsets : nullptr;
  const std::int64_t rows = array.axes() == 0 ? 0 : array.shape[0];
  add_rows(
      array, cuts != nullptr, cuts != nullptr ? cuts->samples() : rows, indices,
      [&](std::int64_t sample) { return Place{array, cuts, sample}; },
      [&](std::int64_t sample) {
        if (cuts != nullptr) cuts->expect(sample);
      });
}

template <class Find, class Expect>
void Sequences::add_rows(const ArrayView& first, bool ragged, std::int64_t length,
                         const py::object& indices, const Find& find, const Expect& expect) {
  const std::size_t sample_axis = ragged ? 0 : 1;
  if (first.axes() <= sample_axis) {
    throw py::value_error(name_ + ": expected samples with at least one axis, got " +
                          (ragged ? "values" : "an array") + " of shape " +
                          shape_text(first.shape));
  }
  axes_ = first.axes() - sample_axis;
  as_tensor_ = first.is_tensor;
  contents_.push_back({first.dtype, first.dtype});

  std::optional<py::array_t<std::int64_t, py::array::c_style>> chosen;
  if (!indices.is_none()) chosen = indices.cast<py::array_t<std::int64_t, py::array::c_style>>();
  const auto samples = static_cast<std::size_t>(chosen ? chosen->size() : length);
  constexpr std::size_t kMost = std::size_t{1} << 40;  // a pointer to each is more than memory
  if (samples > kMost) {
    throw py::value_error(name_ + ": a batch of " + std::to_string(samples) +
                          " samples is larger than memory can be");
  }
  const std::int64_t* const rows = chosen ? chosen->data() : nullptr;

  data_.resize(samples);
  shapes_.resize(samples * axes_);
  strides_.resize(samples * axes_);
  for (std::size_t i = 0; i < samples; ++i) {
    const std::int64_t sample = rows == nullptr ? static_cast<std::int64_t>(i) : rows[i];
    // as_indices has checked them, but against the length the caller gave: never trust memory to
    // it.
    if (sample < 0 || sample >= length) {
      throw py::index_error(name_ + ": index " + std::to_string(sample) + " is out of range for " +
                            std::to_string(length) + " samples");
    }
    if (rows != nullptr && i + kAhead < samples) {
      const std::int64_t later = rows[i + kAhead];
      if (later >= 0 && later < length) expect(later);
    }
    const Place place = find(sample);
    const ArrayView& array = place.array;
    for (std::size_t axis = 0; axis < axes_; ++axis) {
      shapes_[i * axes_ + axis] = array.shape[sample_axis + axis];
      strides_[i * axes_ + axis] = array.stride(sample_axis + axis);
    }
    std::int64_t begin = place.row;
    if (ragged) {
      // They were checked once, but may lie in a file that anybody can write to.
      begin = (*place.offsets)[place.row];
      const std::int64_t end = (*place.offsets)[place.row + 1];
      if (begin < 0 || end < begin || end > array.shape[0]) {
        throw py::value_error(name_ + ": offsets must increase from 0 to at most " +
                              std::to_string(array.shape[0]) + ", got " + std::to_string(begin) +
                              " and " + std::to_string(end) + " for sample " +
                              std::to_string(sample));
      }
      shapes_[i * axes_] = end - begin;
    }
    data_[i] = array.data + begin * array.stride(0);
    if (file_owner_) rows_.push_back(sample);
  }
}

bool Sequences::list_reads() {
  const FileArray* const file = FileArray::in(file_owner_);
  if (file == nullptr) return false;
  const std::size_t item_bytes = dtype(0).item_size();
  const ArrayView array = view_array(owner_, Subject{name_});
  reads_ = std::make_unique<FileReads>(file->rows, array.data, array.stride(0));
  reads_->reserve(count());
  for (std::size_t i = 0; i < count(); ++i) {
    const std::span sizes{shape(i), axes_}, steps{strides(i), axes_};
    const runtime::SampleBytes bytes(sizes, steps, item_bytes);
    if (!bytes.is_dense()) {
      reads_.reset();
      return false;
    }
    reads_->add(rows_[i], data_[i], bytes);
  }
  return true;
}

void Sequences::require_same_rows() const {
  const std::span<const std::int64_t> first{shape(0), axes_};
  for (std::size_t i = 1; i < count(); ++i) {
    const std::span<const std::int64_t> given{shape(i), axes_};
    if (std::ranges::equal(given.subspan(1), first.subspan(1))) continue;
    throw py::value_error(Subject{name_, static_cast<std::int64_t>(i)}.text() +
                          ": expected the shape of sample 0 but for axis 0, " + shape_text(first) +
                          ", got " + shape_text(given) +
                          "; Pad() takes samples that differ along any axis");
  }
}

void Sequences::prefetch() {
  if (!list_reads()) return;
  const py::gil_scoped_release unlocked;
  reads_->prefetch();
}

void Sequences::plan_reads(bool whole, std::size_t threads) {
  if (!list_reads()) return;
  {
    const py::gil_scoped_release unlocked;
    reads_->plan(whole, threads);
  }
  for (std::size_t i = 0; i < count(); ++i) data_[i] = reads_->data(i);
}

void Sequences::view_list() {
  const py::tuple samples = owner_;
  const std::size_t count = samples.size();
  // Lists first: converting a number may run any code, also some that moves the memory of an array.
  const std::vector<Numbers> numbers = read_lists(samples);
  MappedFiles files;
  data_.reserve(count);
  shapes_.reserve(count);
  strides_.reserve(count);
  contents_.reserve(count);
  std::size_t lists = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const py::handle sample = PyTuple_GET_ITEM(samples.ptr(), i);
    if (lists < numbers.size() && NumberLists::is_list(sample)) {
      add(numbers[lists++], i);
    } else {
      files.check(sample);
      add(view_array(sample, Subject{name_, static_cast<std::int64_t>(i)}), i);
    }
  }
}

std::vector<Numbers> Sequences::read_lists(const py::tuple& samples) {
  std::size_t items = 0, lists = 0;
  for (const py::handle sample : samples) {
    if (!NumberLists::is_list(sample)) continue;
    ++lists;
    items += static_cast<std::size_t>(PySequence_Fast_GET_SIZE(sample.ptr()));
  }
  std::vector<Numbers> numbers;
  if (lists == 0) return numbers;
  lists_ = std::make_unique<NumberLists>(items);
  numbers.reserve(lists);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const py::handle sample = PyTuple_GET_ITEM(samples.ptr(), i);
    if (NumberLists::is_list(sample)) {
      numbers.push_back(lists_->read(sample, Subject{name_, static_cast<std::int64_t>(i)}));
    }
  }
  return numbers;
}

void Sequences::require_rank(std::span<const std::int64_t> shape, std::size_t position) {
  if (position == 0) axes_ = shape.size();
  if (shape.size() == axes_ && axes_ > 0) return;
  const Subject subject{name_, static_cast<std::int64_t>(position)};
  if (shape.empty()) {
    throw py::value_error(subject.text() +
                          ": expected at least one axis, got a 0-d array; Stack() makes a batch of "
                          "single values");
  }
  throw py::value_error(subject.text() + ": expected " + std::to_string(axes_) +
                        "-D as in sample 0, got shape " + shape_text(shape));
}

void Sequences::add(const ArrayView& view, std::size_t position) {
  require_rank(view.shape, position);
  if (position == 0) as_tensor_ = view.is_tensor;
  data_.push_back(view.data);
  shapes_.insert(shapes_.end(), view.shape.begin(), view.shape.end());
  for (std::size_t axis = 0; axis < axes_; ++axis) strides_.push_back(view.stride(axis));
  contents_.push_back({view.dtype, view.dtype});
}

void Sequences::add(const Numbers& numbers, std::size_t position) {
  require_rank({&numbers.count, 1}, position);
  if (position == 0) as_tensor_ = true;
  data_.push_back(numbers.data);
  shapes_.push_back(numbers.count);
  strides_.push_back(static_cast<std::int64_t>(numbers.dtype.item_size()));
  contents_.push_back({numbers.dtype, numbers.dtype == kFloat64 ? kFloat32 : numbers.dtype,
                       numbers.smallest, numbers.largest, numbers.count == 0,
                       numbers.largest_real});
}

DType Sequences::common_dtype(DType if_all_are_empty_lists) const {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    if (contents_[i].empty_list) continue;
    if (!first) first = i;
    const DType expected = contents_[*first].counts_as, got = contents_[i].counts_as;
    if (got != expected) {
      throw py::type_error(Subject{name_, static_cast<std::int64_t>(i)}.text() +
                           ": expected dtype " + expected.name() + " as in sample " +
                           std::to_string(*first) + ", got " + got.name() +
                           "; a dtype for the batch would let them differ");
    }
  }
  return first ? contents_[*first].counts_as : if_all_are_empty_lists;
}

std::vector<kernels::Cast> Sequences::casts_to(DType dtype, Scale scale) const {
  std::vector<kernels::Cast> casts(count());
  const std::string wanted = dtype.name();
  std::optional<DType> from;
  kernels::Cast cast;
  for (std::size_t i = 0; i < count(); ++i) {
    const Content& given = content(i);
    if (given.empty_list) continue;
    if (given.stored != from) {  // samples mostly have the dtype of the one before
      from = given.stored;
      cast = {};
      if (from != dtype || scale) {
        const std::string subject = Subject{name_, static_cast<std::int64_t>(i)}.text();
        cast = find_types(*from, wanted, subject, scale, given.counts_as).cast();
      }
    }
    if (!scale && given.smallest <= given.largest && !holds(dtype, given.smallest, given.largest)) {
      throw py::value_error(Subject{name_, static_cast<std::int64_t>(i)}.text() +
                            ": expected integers that " + wanted + " can hold, got " +
                            std::to_string(given.smallest) + " to " +
                            std::to_string(given.largest));
    }
    if (given.largest_real >= overflow_limit(dtype)) {
      throw py::value_error(Subject{name_, static_cast<std::int64_t>(i)}.text() +
                            ": expected numbers that " + wanted + " can hold, got " +
                            std::string(py::repr(py::float_(given.largest_real))) +
                            "; a dtype for the batch may be wider");
    }
    casts[i] = cast;
  }
  return casts;
}

void Sequences::keep(std::size_t sample, std::size_t axis, std::int64_t items, bool last) {
  std::int64_t& size = shapes_[sample * axes_ + axis];
  if (last) data_[sample] += (size - items) * strides_[sample * axes_ + axis];
  size = items;
}

Extent Sequences::extent_of(std::size_t sample) const {
  return extent(ArrayView{.data = const_cast<std::byte*>(data_[sample]),
                          .dtype = dtype(sample),
                          .shape = {shape(sample), axes_},
                          .is_tensor = false,
                          .writable = false,
                          .strides_ = strides(sample),
                          .stride_unit_ = 1});
}

}  // namespace pinfeed::bindings
