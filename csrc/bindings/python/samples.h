// The samples of a batch: rows or sequences of one or many arrays, or a list of separate arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/file_array.h"
#include "bindings/python/number_lists.h"
#include "bindings/python/output.h"
#include "bindings/python/pillow.h"
#include "bindings/python/scalar_types.h"
#include "kernels/cast.h"
#include "kernels/sample.h"

namespace pinfeed::bindings {

class Offsets;

// What all samples must share.
enum class Common : std::uint8_t {
  shape,  // and the dtype
  rank,   // and the dtype: for images
  axes,   // the number of axes, at least one. Dtypes may differ, and lists of numbers are samples
};

// Views of the samples. Keeps their memory alive.
class Samples {
 public:
  // `source`: a list or tuple of arrays and, with Common::axes, of lists of numbers; or an array, a
  // FileArray or PartArrays. `offsets` (None or integers) cuts an array into sequences; without
  // them, each row is a sample. `indices` (None or the result of as_indices) chooses samples.
  //
  // Lists of integers count as int64, of floats as float32, of bools as bool. An empty list takes
  // the dtype of the other samples, and so does an empty 1-D array of floats among other arrays.
  //
  // Throws TypeError and ValueError; a message about one sample names its number.
  Samples(pybind11::object source, pybind11::object offsets, pybind11::object indices,
          const std::string& name, Common common);
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  std::size_t count() const { return data_.size(); }
  std::size_t axes() const { return axes_; }
  bool is_tensor() const { return is_tensor_; }  // whether the first sample is a tensor

  const void* const* data() const { return data_.data(); }
  const std::byte* data(std::size_t sample) const {
    return static_cast<const std::byte*>(data_[sample]);
  }
  // The dtype in memory, before casts.
  DType dtype(std::size_t sample = 0) const { return content(sample).stored; }
  std::span<const std::int64_t> shape(std::size_t sample = 0) const {
    return {shapes_.data() + (one_shape_ ? 0 : sample * axes_), axes_};
  }
  const std::int64_t* strides(std::size_t sample = 0) const {  // bytes
    return strides_.data() + (one_strides_ ? 0 : sample * axes_);
  }
  bool have_one_layout() const { return one_shape_ && one_strides_; }
  bool all_contiguous() const;

  // With Common::rank. An image that has no pixels in memory yet, else null.
  const LateImage* late(std::size_t sample) const {
    return late_.empty() ? nullptr : late_[sample];
  }
  bool are_late() const { return !late_.empty(); }

  // Whether the samples are separate arrays; or all rows of one array, which messages then refer
  // to.
  bool are_separate() const { return pybind11::isinstance<pybind11::tuple>(owner_); }
  bool are_all_rows() const { return are_all_rows_; }
  std::span<const std::int64_t> given_shape() const {
    return are_all_rows_ ? array_.shape : shape();
  }

  // The dtype of all samples. Throws TypeError if they differ.
  DType common_dtype(DType if_all_are_empty_lists) const;

  // Throws ValueError if a sample differs from the first beyond axis 0.
  void require_same_rows() const;

  // With Common::axes. Cuts an axis of one sample to its first or last `items` items.
  void keep(std::size_t sample, std::size_t axis, std::int64_t items, bool last);

  // Throws ValueError if the output of a function overlaps a sample.
  void require_apart(const Output& output, std::size_t bytes, const std::string& function) const;

  // The reads of samples in files, null if they are in memory. Don't call keep() afterwards.
  FileReads* open_reads();
  FileReads* reads() const { return reads_.get(); }
  // Plans the reads, then data() returns the addresses that samples will have, all at once or chunk
  // by chunk.
  void plan_reads(bool whole, std::size_t threads);
  void follow_reads();

  // Prepares the samples for the kernels: casts to one dtype, and plans for non-contiguous samples.
  // block_axis(sample): the first axis from which the sample is one block of the output.
  // `streaming`: whether the output is streamed. Throws TypeError for dtypes without a cast, or
  // without a scaled one; ValueError for a number in a list that `dtype` can't hold. Nothing may
  // change afterwards.
  template <class BlockAxis>
  void prepare(DType dtype, Scale scale, bool streaming, const BlockAxis& block_axis) {
    begin_casts(dtype, scale);
    for (std::size_t i = 0; i < count(); ++i) prepare_one(i, block_axis(i), streaming);
  }
  void prepare(DType dtype, Scale scale, bool streaming) {  // each as one block
    prepare(dtype, scale, streaming, [](std::size_t) { return std::size_t{0}; });
  }
  const kernels::Sample* prepared() const { return prepared_.data(); }

  // After writing: throws ValueError for an integer that did not fit.
  void require_fit() const;

 private:
  // The position of a sample.
  struct Location {
    const ArrayView& array;
    const Offsets* offsets;  // null: it is a row
    std::int64_t row;        // or the number of the sequence
  };

  struct Content {
    DType stored;
    DType counts_as;
    std::int64_t smallest = 0;  // of the integers of a list
    std::int64_t largest = 0;
    bool empty_list = false;
    double largest_real = 0;  // of the floats of a list

    bool operator==(const Content&) const = default;
  };
  const Content& content(std::size_t sample) const {
    return contents_[contents_.size() == 1 ? 0 : sample];
  }

  Subject subject(std::size_t sample) const { return {name_, static_cast<std::int64_t>(sample)}; }
  // as_indices has checked them against a length from the caller, which memory safety must not rely
  // on.
  std::int64_t checked(std::int64_t index, std::int64_t length) const {
    if (index < 0 || index >= length) refuse(index, length);
    return index;
  }
  [[noreturn, gnu::noinline]] void refuse(std::int64_t index, std::int64_t length) const;
  void view_rows(const pybind11::object& indices);
  void begin_rows(const ArrayView& first, bool ragged, bool same_strides, std::size_t samples);
  template <class Find, class Expect>
  void add_places(const std::int64_t* chosen, std::int64_t length, const Find& find,
                  const Expect& expect);
  void view_list();
  bool add_late(pybind11::handle sample, std::size_t position);
  std::vector<Numbers> read_lists(const pybind11::tuple& samples);
  void add(const ArrayView& view, std::size_t position);
  void add(const Numbers& numbers, std::size_t position);
  void add(const Content& content, std::size_t position);
  void require_common(const ArrayView& view, std::size_t position) const;
  void require_axes(std::span<const std::int64_t> shape, std::size_t position);
  bool is_empty_array(std::size_t sample) const;
  bool contiguous(std::size_t sample, std::size_t from_axis) const;
  void begin_casts(DType dtype, Scale scale);
  void prepare_one(std::size_t sample, std::size_t block_axis, bool streaming);

  const std::string& name_;
  Common common_;
  pybind11::object owner_;
  pybind11::object offsets_owner_;
  pybind11::object file_owner_;  // the FileArray that owner_ belongs to
  std::unique_ptr<NumberLists> lists_;
  ArrayView array_{};  // the array whose rows or sequences the samples are, if there is one
  bool are_all_rows_ = false;
  bool is_tensor_ = false;
  std::size_t axes_ = 0;
  std::vector<const void*> data_;
  bool one_shape_ = false;  // for all samples
  bool one_strides_ = false;
  std::vector<std::int64_t> shapes_;
  std::vector<std::int64_t> strides_;
  std::vector<Content> contents_;  // one for all samples, while they are equal

  std::vector<const LateImage*> late_;  // empty, or one or null per sample
  std::vector<std::int64_t> rows_;      // for a FileArray: the row of each sample
  std::unique_ptr<FileReads> reads_;

  DType dtype_{};
  std::vector<kernels::Cast> casts_;
  std::vector<kernels::Sample> prepared_;
  std::vector<kernels::StridedCopy> plans_;
  bool misfit_ = false;  // set by the kernels
};

}  // namespace pinfeed::bindings
