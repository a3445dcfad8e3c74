#include "bindings/python/samples.h"

#include <pybind11/numpy.h>

#include <algorithm>

#include "bindings/python/mapped_file.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// What all rows of an array have in common.
ArrayView row_of(ArrayView array) {
  array.shape = array.shape.subspan(1);
  array.strides_ += 1;
  return array;
}

}  // namespace

Samples::Samples(py::object source, py::object indices, const std::string& name, Common common) {
  if (py::isinstance<py::list>(source) || py::isinstance<py::tuple>(source)) {
    // A tuple of our own: another thread may change the list while the GIL is released.
    owner_ = py::tuple(std::move(source));
    view_list(name, common);
  } else {
    owner_ = std::move(source);
    view_rows(indices, name);
  }
}

void Samples::view_rows(const py::object& indices, const std::string& name) {
  if (const PartArrays* const parts = PartArrays::in(owner_)) {
    return view_parts(*parts, indices, name);
  }
  const FileArray* const file = FileArray::in(owner_);
  if (file != nullptr) {
    file_owner_ = owner_;
    owner_ = file->array;
    in_memory_ = file->rows.ends.empty();
  }
  array_ = view_array(owner_, Subject{name});
  if (file == nullptr || !in_memory_ || file->rows.files->size(0) < file->rows.first_size) {
    MappedFiles().check(owner_);
  }
  if (array_.axes() == 0) {
    throw py::value_error(name + ": expected an axis that counts samples, got a 0-d array");
  }
  first_ = row_of(array_);
  all_contiguous_ = first_.contiguous();
  const std::int64_t step = array_.stride(0);
  if (indices.is_none()) {
    if (file != nullptr) throw py::type_error(name + ": a FileArray needs indices");
    all_rows_ = true;
    data_.resize(static_cast<std::size_t>(array_.shape[0]));
    for (std::size_t i = 0; i < data_.size(); ++i) {
      data_[i] = array_.data + static_cast<std::int64_t>(i) * step;
    }
    return;
  }
  const auto rows = indices.cast<py::array_t<std::int64_t, py::array::c_style>>();
  const std::int64_t* row = rows.data();
  data_.resize(static_cast<std::size_t>(rows.size()));
  for (std::size_t i = 0; i < data_.size(); ++i) {
    // as_indices has checked them, but against the length the caller gave: never trust memory to
    // it.
    if (row[i] < 0 || row[i] >= array_.shape[0]) {
      throw py::index_error(name + ": index " + std::to_string(row[i]) + " is out of range for " +
                            std::to_string(array_.shape[0]) + " samples");
    }
    data_[i] = array_.data + row[i] * step;
  }
  if (file == nullptr) return;
  const runtime::SampleBytes bytes(first_.shape, first_.byte_strides(), first_.dtype.item_size());
  if (!bytes.is_dense()) return;
  reads_ = std::make_unique<FileReads>(file->rows, array_.data, step);
  reads_->add_rows({row, data_.size()}, bytes);
}

void Samples::view_parts(const PartArrays& parts, const py::object& indices,
                         const std::string& name) {
  if (indices.is_none()) throw py::type_error(name + ": PartArrays need indices");
  if (!parts.offsets.empty()) throw py::type_error(name + ": expected rows, got sequences");
  first_ = row_of(parts.views[0]);
  all_contiguous_ = parts.same_strides && first_.contiguous();
  const auto rows = indices.cast<py::array_t<std::int64_t, py::array::c_style>>();
  MappedFiles files;
  PartFinder finder(parts, files);
  data_.reserve(static_cast<std::size_t>(rows.size()));
  for (const std::int64_t row : std::span(rows.data(), static_cast<std::size_t>(rows.size()))) {
    // As in view_rows.
    if (row < 0 || row >= parts.ends.rows()) {
      throw py::index_error(name + ": index " + std::to_string(row) + " is out of range for " +
                            std::to_string(parts.ends.rows()) + " samples");
    }
    const auto [part, row_of_part] = finder.find(row);
    finder.check(part);
    const ArrayView& view = parts.views[part];
    data_.push_back(view.data + row_of_part * view.stride(0));
    if (!parts.same_strides) views_.push_back(row_of(view));
  }
}

void Samples::plan_reads(bool whole, std::size_t threads) {
  if (reads_ == nullptr) return;
  {
    const py::gil_scoped_release unlocked;
    reads_->plan(whole, threads);
  }
  follow_reads();
}

void Samples::follow_reads() {
  for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = reads_->data(i);
}

void Samples::view_list(const std::string& name, Common common) {
  const py::tuple samples = owner_;
  if (samples.empty()) throw py::value_error(name + ": expected at least one sample, got none");
  MappedFiles files;
  views_.reserve(samples.size());
  data_.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Subject subject{name, static_cast<std::int64_t>(i)};
    const py::handle sample = PyTuple_GET_ITEM(samples.ptr(), i);
    const ArrayView view = view_array(sample, subject);
    files.check(sample);
    if (i == 0) {
      first_ = view;
    } else if (view.dtype != first_.dtype) {
      throw py::type_error(subject.text() + ": expected dtype " + first_.dtype.name() +
                           " as in sample 0, got " + view.dtype.name());
    } else if (common == Common::rank) {
      if (view.axes() != first_.axes()) {
        throw py::value_error(subject.text() + ": expected " + std::to_string(first_.axes()) +
                              " axes as in sample 0 of shape " + shape_text(first_.shape) +
                              ", got shape " + shape_text(view.shape) +
                              "; PIL's .convert(\"RGB\") gives all images the same channels");
      }
    } else if (!std::equal(view.shape.begin(), view.shape.end(), first_.shape.begin(),
                           first_.shape.end())) {
      throw py::value_error(subject.text() + ": expected shape " + shape_text(first_.shape) +
                            " as in sample 0, got " + shape_text(view.shape) +
                            (view.axes() == first_.axes() && view.axes() > 0
                                 ? "; Pad() and Jagged() take samples of different sizes"
                                 : ""));
    }
    all_contiguous_ = all_contiguous_ && view.contiguous();
    views_.push_back(view);
    data_.push_back(view.data);
  }
}

std::vector<ArrayView> Samples::sources() const {
  if (!in_memory_ || PartArrays::in(owner_) != nullptr) return {};
  return views_.empty() ? std::vector<ArrayView>{array_} : views_;
}

}  // namespace pinfeed::bindings
