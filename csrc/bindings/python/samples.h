// A batch as a function gets it: the rows of one array, all or those of an index list, or a list of
// separate arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/file_array.h"
#include "bindings/python/part_arrays.h"

namespace pinfeed::bindings {

// What separate samples must have in common beside their dtype.
enum class Common : std::uint8_t { shape, rank };

// Views of the samples, all of one dtype and shape, or rank. Keeps alive what they look at.
class Samples {
 public:
  // `source`: an array whose first axis counts samples, maybe a FileArray or PartArrays, or a
  // sequence of arrays.
  // `indices`: None, or what as_indices returned for the array. Throws TypeError and ValueError; a
  // message about one sample says which.
  Samples(pybind11::object source, pybind11::object indices, const std::string& name,
          Common common = Common::shape);

  std::size_t count() const { return data_.size(); }
  DType dtype() const { return first_.dtype; }
  std::span<const std::int64_t> shape() const { return first_.shape; }  // of the first sample
  std::span<const std::int64_t> shape(std::size_t sample) const {
    return separate() ? views_[sample].shape : first_.shape;
  }
  bool is_tensor() const { return first_.is_tensor; }
  bool all_contiguous() const { return all_contiguous_; }
  // Whether the samples are arrays of their own, each with its strides.
  bool separate() const { return !views_.empty(); }

  const void* const* data() const { return data_.data(); }
  // What reads the samples, if they have to be read; null if data() is where they are.
  FileReads* reads() const { return reads_.get(); }
  // If they do: has reads() plan, and follows it.
  void plan_reads(bool whole, std::size_t threads);
  // Has data() say where reads() finds the samples.
  void follow_reads();
  // Byte stride of one sample's axis.
  std::int64_t stride(std::size_t sample, std::size_t axis) const {
    return separate() ? views_[sample].stride(axis) : first_.stride(axis);
  }
  Shape byte_strides(std::size_t sample) const {
    return separate() ? views_[sample].byte_strides() : first_.byte_strides();
  }
  // Whether all rows of one array were asked for; then messages speak of the array, else of
  // samples.
  bool all_rows() const { return all_rows_; }
  std::span<const std::int64_t> given_shape() const { return all_rows() ? array_.shape : shape(); }
  // Each separate array; for rows of one array, that array. None if all are in files, or in parts:
  // these come from Collate, whose output is memory of its own.
  std::vector<ArrayView> sources() const;

 private:
  void view_rows(const pybind11::object& indices, const std::string& name);
  void view_parts(const PartArrays& parts, const pybind11::object& indices,
                  const std::string& name);
  void view_list(const std::string& name, Common common);

  pybind11::object owner_;
  pybind11::object file_owner_;  // the FileArray that owner_ stands for
  std::unique_ptr<FileReads> reads_;
  bool in_memory_ = true;
  ArrayView array_{};             // rows of one array
  std::vector<ArrayView> views_;  // separate arrays; empty for rows of one array
  ArrayView first_{};             // stands for every sample's dtype and rank
  std::vector<const void*> data_;
  bool all_rows_ = false;
  bool all_contiguous_ = true;
};

}  // namespace pinfeed::bindings
