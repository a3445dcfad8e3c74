// A batch whose samples may differ in size: separate arrays or lists of numbers, or parts of one
// array.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/file_array.h"
#include "bindings/python/number_lists.h"
#include "bindings/python/scalar_types.h"
#include "kernels/cast.h"

namespace pinfeed::bindings {

class Offsets;

// Views of the samples, all of one rank, at least 1. Keeps alive what they look at.
class Sequences {
 public:
  // `source`: a list or tuple of arrays and of lists of numbers; or an array, maybe a FileArray, or
  // PartArrays. Then `offsets` (None or integers) cuts an array into samples, without them each row
  // is one; and `indices` (None or what as_indices returned) says which samples.
  //
  // Lists of integers count as int64, of floats as float32, of bools as bool; an empty one, and a
  // batch of empty ones, as whatever the others are.
  //
  // Throws TypeError and ValueError; a message about one sample says which.
  Sequences(pybind11::object source, pybind11::object offsets, pybind11::object indices,
            const std::string& name);

  std::size_t count() const { return data_.size(); }
  std::size_t axes() const { return axes_; }
  bool as_tensor() const { return as_tensor_; }  // whether the first sample is no ndarray

  const std::byte* data(std::size_t sample) const { return data_[sample]; }
  const std::int64_t* shape(std::size_t sample) const { return &shapes_[sample * axes_]; }
  const std::int64_t* strides(std::size_t sample) const { return &strides_[sample * axes_]; }
  // As it lies in memory: what has to be cast.
  DType dtype(std::size_t sample) const { return content(sample).stored; }

  // The dtype of all samples. Throws TypeError for one that has another.
  DType common_dtype(DType if_all_are_empty_lists) const;

  // The cast that each sample needs, null for none. Throws TypeError if there is none to `dtype`
  // that takes the scale, ValueError for a number in a list that `dtype` can't hold.
  std::vector<kernels::Cast> casts_to(DType dtype, Scale scale) const;

  // Throws ValueError for a sample that differs from the first beyond axis 0.
  void require_same_rows() const;

  // Cuts an axis of one sample to `items` items: the first ones, or the last.
  void keep(std::size_t sample, std::size_t axis, std::int64_t items, bool last);

  Extent extent_of(std::size_t sample) const;

  // Of samples in a FileArray: says where they will be, all from now on or when reads() comes to
  // them. Nothing may be cut afterwards.
  void plan_reads(bool whole, std::size_t threads);
  // Instead: asks the system for the samples, which a later batch will read.
  void prefetch();
  // What reads the samples, null if they are in memory.
  FileReads* reads() const { return reads_.get(); }

 private:
  bool list_reads();
  void view_rows(const pybind11::object& indices);
  // Adds the samples of `indices`, out of `length`. find(sample): its Place; expect(sample): asks
  // for its offsets, which will be needed soon.
  template <class Find, class Expect>
  void add_rows(const ArrayView& first, bool ragged, std::int64_t length,
                const pybind11::object& indices, const Find& find, const Expect& expect);
  void view_list();
  std::vector<Numbers> read_lists(const pybind11::tuple& samples);
  void add(const ArrayView& view, std::size_t position);
  void add(const Numbers& numbers, std::size_t position);
  void require_rank(std::span<const std::int64_t> shape, std::size_t position);

  // Where a sample lies.
  struct Place {
    const ArrayView& array;
    const Offsets* offsets;  // null: it is a row
    std::int64_t row;        // or the sequence of that number
  };

  struct Content {
    DType stored;
    DType counts_as;
    std::int64_t smallest = 0;  // of the integers of a list
    std::int64_t largest = 0;
    bool empty_list = false;
    double largest_real = 0;  // of the floats of a list
  };
  const Content& content(std::size_t sample) const {
    return contents_[contents_.size() == 1 ? 0 : sample];
  }

  const std::string& name_;
  pybind11::object owner_;
  pybind11::object offsets_owner_;
  pybind11::object file_owner_;     // the FileArray that owner_ stands for
  std::vector<std::int64_t> rows_;  // of a FileArray: those of the samples
  std::unique_ptr<FileReads> reads_;
  std::unique_ptr<NumberLists> lists_;
  std::size_t axes_ = 0;
  bool as_tensor_ = false;
  std::vector<const std::byte*> data_;
  std::vector<std::int64_t> shapes_;
  std::vector<std::int64_t> strides_;
  std::vector<Content> contents_;  // one for all parts of one array
};

}  // namespace pinfeed::bindings
