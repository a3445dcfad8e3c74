// Samples: their views and addresses.
#include "bindings/python/samples.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <optional>

#include "bindings/python/mapped_file.h"
#include "bindings/python/options.h"
#include "bindings/python/part_arrays.h"
#include "bindings/python/torch_exchange.h"
#include "kernels/copy.h"
#include "kernels/lookahead.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using Indices = py::array_t<std::int64_t, py::array::c_style>;

// The number of prefetches in flight, because chosen samples and their offsets are at random
// addresses.
constexpr std::size_t kAhead = 16;

// Prefetches the rest of a later sample's object. Its beginning, with the reference count, is
// cached since the tuple was created.
void prefetch_object(PyObject* sample) {
  kernels::prefetch_line(reinterpret_cast<const std::byte*>(sample) + kernels::kLine);
}

// Then prefetches the targets of the object's first fields, such as the data and the shape of an
// ndarray or the implementation of a tensor. A field that is not an address is prefetched in vain,
// which is harmless. More lines would wait for one another, because most of the time goes into
// finding their pages. Not for a list, which another thread may be changing.
void prefetch_fields(PyObject* sample) {
  if (NumberLists::is_list(sample)) return;
  constexpr std::size_t kFields = 3;
  const auto* const fields = reinterpret_cast<const void* const*>(sample + 1);
  if (static_cast<std::size_t>(Py_TYPE(sample)->tp_basicsize) <
      sizeof(PyObject) + kFields * sizeof(*fields)) {
    return;
  }
  for (std::size_t i = 0; i < kFields; ++i) {
    kernels::prefetch_line(__atomic_load_n(fields + i, __ATOMIC_RELAXED));
  }
}

constexpr std::size_t kMax = std::size_t{1} << 40;  // more pointers than memory can hold

}  // namespace

Samples::Samples(py::object source, py::object offsets, py::object indices, const std::string& name,
                 Common common)
    : name_(name), common_(common) {
  const bool is_list = py::isinstance<py::list>(source) || py::isinstance<py::tuple>(source);
  if (is_list) {
    // Our own tuple: another thread may change the list while the GIL is released.
    owner_ = py::tuple(std::move(source));
    view_list();
  } else {
    owner_ = std::move(source);
    offsets_owner_ = std::move(offsets);
    view_rows(indices);
  }
  if (count() == 0 && (is_list || common_ == Common::axes)) {
    throw wrong_value({name_}, "at least one sample", "none");
  }
}

void Samples::refuse(std::int64_t index, std::int64_t length) const {
  throw wrong_index({name_}, "index " + std::to_string(index) + " is out of range for " +
                                 std::to_string(length) + " samples");
}

void Samples::view_rows(const py::object& indices) {
  std::optional<Indices> chosen;
  if (py::isinstance<Indices>(indices)) {
    chosen = py::reinterpret_borrow<Indices>(indices);  // a cast takes four times as long
  } else if (!indices.is_none()) {
    chosen = indices.cast<Indices>();
  }
  const std::int64_t* const rows = chosen ? chosen->data() : nullptr;
  const auto samples_of = [&](std::int64_t length) {
    return static_cast<std::size_t>(chosen ? chosen->size() : length);
  };
  MappedFiles files;
  if (const PartArrays* const parts = held_in<PartArrays>(owner_)) {
    const bool ragged = !parts->offsets.empty();
    if (ragged && common_ != Common::axes) throw wrong_type({name_}, "rows", "sequences");
    std::vector<bool> is_checked(parts->views.size());
    begin_rows(parts->views[0], ragged, !ragged && parts->same_strides,
               samples_of(parts->ends.rows()));
    return add_places(
        rows, parts->ends.rows(),
        [&](std::int64_t sample) {
          const std::size_t part = parts->ends.part_of(sample);
          if (!is_checked[part]) parts->check_files(part, files);
          is_checked[part] = true;
          return Location{parts->views[part], ragged ? &parts->offsets[part] : nullptr,
                          sample - parts->ends.first_row(part)};
        },
        [&](std::int64_t sample) {
          if (!ragged) return;
          const std::size_t part = parts->ends.part_of(sample);
          parts->offsets[part].expect(sample - parts->ends.first_row(part));
        });
  }
  const FileArray* const file = held_in<FileArray>(owner_);
  if (file != nullptr) {
    file_owner_ = owner_;
    owner_ = file->array;
  }
  array_ = view_array(owner_, Subject{name_});
  if (file == nullptr || !file->rows.files->is_mapped_whole()) files.check(owner_);
  if (!offsets_owner_.is_none()) {
    const Offsets offsets(offsets_owner_, name_);
    files.check(offsets_owner_);
    begin_rows(array_, true, true, samples_of(offsets.samples()));
    return add_places(
        rows, offsets.samples(),
        [&](std::int64_t sample) { return Location{array_, &offsets, sample}; },
        [&](std::int64_t sample) { offsets.expect(sample); });
  }
  const std::int64_t length = array_.axes() == 0 ? 0 : array_.shape[0];
  begin_rows(array_, false, true, samples_of(length));
  are_all_rows_ = !chosen;
  const std::byte* const begin = array_.data;
  const std::int64_t step = array_.stride(0);
  const void** const data = data_.data();
  for (std::size_t i = 0; i < data_.size(); ++i) {
    const std::int64_t row =
        rows == nullptr ? static_cast<std::int64_t>(i) : checked(rows[i], length);
    data[i] = begin + row * step;
    if (file != nullptr) rows_.push_back(row);
  }
}

// The layout that samples of one array, or of arrays like `first`, share.
void Samples::begin_rows(const ArrayView& first, bool ragged, bool same_strides,
                         std::size_t samples) {
  const std::size_t sample_axis = ragged ? 0 : 1;
  if (common_ == Common::axes && first.axes() <= sample_axis) {
    throw wrong_value(
        {name_}, "samples with at least one axis",
        (ragged ? "values of shape " : "an array of shape ") + shape_text(first.shape));
  }
  if (first.axes() < sample_axis) {
    throw wrong_value({name_}, "an axis that counts samples", "a 0-d array");
  }
  if (samples > kMax) {
    throw wrong_value(
        {name_}, "a batch of " + std::to_string(samples) + " samples is too large for any memory");
  }
  axes_ = first.axes() - sample_axis;
  is_tensor_ = first.is_tensor;
  contents_.push_back({first.dtype, first.dtype});
  one_shape_ = common_ != Common::axes;  // keep() may cut samples
  one_strides_ = same_strides;
  data_.resize(samples);
  const std::size_t shapes = one_shape_ ? 1 : samples, strides = one_strides_ ? 1 : samples;
  shapes_.reserve(shapes * axes_);
  strides_.reserve(strides * axes_);
  const auto shape = first.shape.subspan(sample_axis);
  for (std::size_t i = 0; i < shapes; ++i)
    shapes_.insert(shapes_.end(), shape.begin(), shape.end());
  for (std::size_t i = 0; i < strides; ++i) {
    for (std::size_t axis = 0; axis < axes_; ++axis) {
      strides_.push_back(first.stride(sample_axis + axis));
    }
  }
}

// Fills in the rows that begin_rows has prepared. `chosen`: from `length` samples, null for all.
// find(sample): its Location; expect(sample): prefetches its offsets.
template <class Find, class Expect>
void Samples::add_places(const std::int64_t* chosen, std::int64_t length, const Find& find,
                         const Expect& expect) {
  const std::size_t samples = data_.size();
  for (std::size_t i = 0; i < samples; ++i) {
    const std::int64_t sample =
        chosen == nullptr ? static_cast<std::int64_t>(i) : checked(chosen[i], length);
    if (chosen != nullptr && i + kAhead < samples) {
      const std::int64_t later = chosen[i + kAhead];
      if (later >= 0 && later < length) expect(later);
    }
    const Location location = find(sample);
    const ArrayView& array = location.array;
    std::int64_t begin = location.row;
    if (location.offsets != nullptr) {
      // They were checked once, but may be in a file that others can write to.
      begin = (*location.offsets)[location.row];
      const std::int64_t end = (*location.offsets)[location.row + 1];
      if (begin < 0 || end < begin || end > array.shape[0]) {
        throw wrong_value({name_}, "offsets must not decrease and must be from 0 to " +
                                       std::to_string(array.shape[0]) + ", got " +
                                       std::to_string(begin) + " and " + std::to_string(end) +
                                       " for sample " + std::to_string(sample));
      }
      shapes_[i * axes_] = end - begin;
    }
    if (!one_strides_) {
      const std::size_t sample_axis = array.axes() - axes_;
      for (std::size_t axis = 0; axis < axes_; ++axis) {
        strides_[i * axes_ + axis] = array.stride(sample_axis + axis);
      }
    }
    data_[i] = array.data + begin * array.stride(0);
    if (file_owner_) rows_.push_back(sample);
  }
}

void Samples::view_list() {
  const py::tuple samples = owner_;
  const std::size_t count = samples.size();
  // Lists first: converting a number may run any code, which may move the memory of an array.
  std::vector<Numbers> numbers;
  if (common_ == Common::axes) numbers = read_lists(samples);
  MappedFiles files;
  data_.reserve(count);
  shapes_.reserve(count);
  strides_.reserve(count);
  one_shape_ = common_ == Common::shape;
  std::size_t lists = 0;
  const auto prefetch_ahead = [&](std::size_t i) {
    if (i + kAhead < count) prefetch_object(PyTuple_GET_ITEM(samples.ptr(), i + kAhead));
    if (i < count) prefetch_fields(PyTuple_GET_ITEM(samples.ptr(), i));
  };
  for (std::size_t i = 0; i < std::min(count, kAhead); ++i) {
    prefetch_object(PyTuple_GET_ITEM(samples.ptr(), i));
  }
  for (std::size_t i = 0; i < kAhead; ++i) prefetch_ahead(i);
  for (std::size_t i = 0; i < count; ++i) {
    prefetch_ahead(i + kAhead);
    const py::handle sample = PyTuple_GET_ITEM(samples.ptr(), i);
    if (lists < numbers.size() && NumberLists::is_list(sample)) {
      add(numbers[lists++], i);
    } else {
      if (add_late(sample, i)) continue;
      const ArrayView view = view_array(sample, subject(i));
      files.check(sample);
      add(view, i);
    }
  }
}

// Whether a sample is an image that is converted later.
bool Samples::add_late(py::handle sample, std::size_t position) {
  if (common_ != Common::rank || py::isinstance<py::array>(sample) || bindings::is_tensor(sample))
    return false;
  const LateImage* const image = held_in<LateImage>(sample);
  if (image == nullptr) return false;
  late_.resize(data_.capacity());
  late_[position] = image;
  add(image->view(), position);
  return true;
}

std::vector<Numbers> Samples::read_lists(const py::tuple& samples) {
  std::size_t items = 0, lists = 0;
  for (const py::handle sample : samples) {
    if (!NumberLists::is_list(sample)) continue;
    ++lists;
    items += NumberLists::size(sample);
  }
  std::vector<Numbers> numbers;
  if (lists == 0) return numbers;
  lists_ = std::make_unique<NumberLists>(items);
  numbers.reserve(lists);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const py::handle sample = PyTuple_GET_ITEM(samples.ptr(), i);
    if (NumberLists::is_list(sample)) {
      numbers.push_back(lists_->read(sample, subject(i)));
    }
  }
  return numbers;
}

void Samples::add(const ArrayView& view, std::size_t position) {
  if (common_ == Common::axes) {
    require_axes(view.shape, position);
  } else if (position > 0) {
    require_common(view, position);
  }
  if (position == 0) {
    axes_ = view.axes();
    is_tensor_ = view.is_tensor;
  }
  data_.push_back(view.data);
  if (position == 0 || !one_shape_) {
    shapes_.insert(shapes_.end(), view.shape.begin(), view.shape.end());
  }
  for (std::size_t axis = 0; axis < axes_; ++axis) strides_.push_back(view.stride(axis));
  if (position == 0 || common_ == Common::axes) add(Content{view.dtype, view.dtype}, position);
}

void Samples::add(const Content& content, std::size_t position) {
  if (contents_.size() == 1 && content == contents_[0]) return;
  if (position > 0) {
    contents_.reserve(data_.capacity());
    contents_.resize(position, contents_[0]);
  }
  contents_.push_back(content);
}

void Samples::add(const Numbers& numbers, std::size_t position) {
  require_axes({&numbers.count, 1}, position);
  if (position == 0) is_tensor_ = true;
  data_.push_back(numbers.data);
  shapes_.push_back(numbers.count);
  strides_.push_back(static_cast<std::int64_t>(numbers.dtype.item_size()));
  add(Content{numbers.dtype, numbers.dtype == kFloat64 ? kFloat32 : numbers.dtype, numbers.smallest,
              numbers.largest, numbers.count == 0, numbers.largest_real},
      position);
}

void Samples::require_common(const ArrayView& view, std::size_t position) const {
  if (view.dtype != dtype()) {
    throw wrong_type(subject(position), "dtype " + dtype().name() + " as in sample 0",
                     view.dtype.name(),
                     common_ == Common::rank
                         ? "convert all images to one dtype; bytes become floats of 0..1 with "
                           "(image / 255).astype(np.float32)"
                         : "");
  }
  if (common_ == Common::rank) {
    if (view.axes() == axes_) return;
    // samples with two axes, where others have three
    const bool are_gray = axes_ + view.axes() == 5;
    const char* const alike =
        dtype() == kUint8 ? "PIL's .convert(\"RGB\") gives all images the same channels"
                          : "np.stack([image] * 3, -1) makes three channels of a gray image, or "
                            "np.stack([image] * 3) where they come first";
    throw wrong_value(
        subject(position),
        std::to_string(axes_) + " axes as in sample 0 of shape " + shape_text(shape()),
        "shape " + shape_text(view.shape), are_gray ? alike : "");
  }
  if (std::ranges::equal(view.shape, shape())) return;
  Problem problem =
      wrong_value(subject(position), "shape " + shape_text(shape()) + " as in sample 0",
                  shape_text(view.shape));
  throw view.axes() == axes_ && axes_ > 0 ? std::move(problem).of_shapes() : problem;
}

void Samples::require_axes(std::span<const std::int64_t> shape, std::size_t position) {
  if (position == 0) axes_ = shape.size();
  if (shape.size() == axes_ && axes_ > 0) return;
  if (shape.empty()) {
    throw wrong_value(subject(position), "at least one axis", "a 0-d array",
                      "Stack() makes a batch of single values");
  }
  // An empty list has one axis; arrays beside it can have more.
  std::string hint;
  const bool is_first_empty = position > 0 && axes_ == 1 && shapes_[0] == 0;
  if (is_first_empty || (shape.size() == 1 && shape[0] == 0)) {
    const auto& full = is_first_empty ? shape : this->shape();
    std::vector<std::int64_t> empty(full.begin(), full.end());
    empty[0] = 0;
    hint = "np.zeros(" + shape_text(empty) + ", dtype) is an empty sample for others of that dtype";
  }
  throw wrong_value(subject(position), std::to_string(axes_) + "-D as in sample 0",
                    "shape " + shape_text(shape), hint);
}

void Samples::require_same_rows() const {
  for (std::size_t i = 1; i < count(); ++i) {
    if (std::ranges::equal(shape(i).subspan(1), shape().subspan(1))) continue;
    throw wrong_value(subject(i), "the shape of sample 0 except axis 0, " + shape_text(shape()),
                      shape_text(shape(i)),
                      axes_ == 2 && shape(i)[0] == shape()[0]
                          ? "transpose samples that differ along axis 1 only, such as edges of "
                            "shape (2, E); Pad() takes samples that differ along any axis"
                          : "Pad() takes samples that differ along any axis");
  }
}

void Samples::keep(std::size_t sample, std::size_t axis, std::int64_t items, bool last) {
  std::int64_t& size = shapes_[sample * axes_ + axis];
  if (last) data_[sample] = data(sample) + (size - items) * strides(sample)[axis];
  size = items;
}

void Samples::require_apart(const Output& output, std::size_t bytes,
                            const std::string& function) const {
  if (const PartArrays* const parts = held_in<PartArrays>(owner_)) {
    for (const ArrayView& view : parts->views) check_no_overlap(output, bytes, view, function);
  } else if (are_separate()) {
    for (std::size_t i = 0; i < count(); ++i) {
      if (late(i) != nullptr) continue;
      const arrays::Extent sample =
          arrays::extent(data_[i], shape(i), {strides(i), axes_}, 1, dtype(i).item_size());
      check_no_overlap(output, bytes, sample, function);
    }
  } else {
    check_no_overlap(output, bytes, array_, function);
  }
}

FileReads* Samples::open_reads() {
  const FileArray* const file = held_in<FileArray>(file_owner_);
  if (file == nullptr) return nullptr;
  const auto bytes_of = [&](std::size_t i) {
    return runtime::SampleBytes(shape(i), {strides(i), axes_}, dtype().item_size());
  };
  auto reads = std::make_unique<FileReads>(file->rows, array_.data, array_.stride(0));
  if (have_one_layout()) {
    if (!bytes_of(0).is_dense()) return nullptr;
    reads->add_rows(rows_, bytes_of(0));
  } else {
    reads->reserve(count());
    for (std::size_t i = 0; i < count(); ++i) {
      const runtime::SampleBytes bytes = bytes_of(i);
      if (!bytes.is_dense()) return nullptr;
      reads->add(rows_[i], data(i), bytes);
    }
  }
  reads_ = std::move(reads);
  return reads_.get();
}

void Samples::plan_reads(bool whole, std::size_t threads) {
  if (reads_ == nullptr && open_reads() == nullptr) return;
  {
    const Unlocked unlocked(whole || !reads_->seems_hot());
    reads_->plan(whole, threads);
  }
  follow_reads();
}

void Samples::follow_reads() {
  for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = reads_->data(i);
}

}  // namespace pinfeed::bindings
