// Prepares samples for the kernels: dtypes, casts and plans.
#include <algorithm>
#include <optional>

#include "bindings/python/samples.h"
#include "kernels/item.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// Whether a dtype can hold a number, which is rounded if the dtype is floating.
bool holds(DType dtype, double real) { return kernels::item_of(real, 0, dtype.type).has_value(); }

bool holds(DType dtype, std::int64_t integer) {
  return dtype.is_integer() ? kernels::item_of_integer(integer, dtype.type).has_value()
                            : holds(dtype, static_cast<double>(integer));
}

}  // namespace

// Whether a sample is the default array of an empty list, a 1-D array of floats.
bool Samples::is_empty_array(std::size_t i) const {
  return content(i).stored.is_floating() && axes_ == 1 && shape(i)[0] == 0 && are_separate();
}

DType Samples::common_dtype(DType if_all_are_empty_lists) const {
  std::optional<std::size_t> first, empty_array;
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    if (contents_[i].empty_list) continue;
    if (is_empty_array(i)) {
      if (!empty_array) empty_array = i;
      continue;
    }
    if (!first) first = i;
    const DType expected = contents_[*first].counts_as, got = contents_[i].counts_as;
    if (got != expected) {
      throw wrong_type(subject(i),
                       "dtype " + expected.name() + " as in sample " + std::to_string(*first),
                       got.name(), "pass dtype= to convert all to one");
    }
  }
  if (!first) first = empty_array;
  return first ? contents_[*first].counts_as : if_all_are_empty_lists;
}

void Samples::begin_casts(DType dtype, Scale scale) {
  dtype_ = dtype;
  casts_.resize(count());
  prepared_.reserve(count());
  plans_.reserve(count());  // prepared_ points into it
  const std::string name = dtype.name();
  // Dtypes that hold all 64-bit integers need no check per sample.
  const bool may_overflow =
      scale.value_or(1) == 1 && dtype != kInt64 && (dtype.is_integer() || dtype == kFloat16);
  std::optional<DType> from;
  kernels::Cast cast;
  // If one entry describes all samples, the first array that is not empty determines it: empty
  // arrays need no cast.
  const bool one_for_all = contents_.size() < count();
  std::size_t begin = 0;
  while (one_for_all && begin + 1 < count() && is_empty_array(begin)) ++begin;
  const std::size_t end = one_for_all ? begin + 1 : count();
  for (std::size_t i = begin; i < end; ++i) {
    const Content& given = content(i);
    if (given.empty_list || is_empty_array(i)) continue;
    if (given.stored != from) {  // most samples have the dtype of the one before
      from = given.stored;
      cast = {};
      if (from != dtype || scale) {
        cast = find_types(*from, name, subject(i), scale, given.counts_as).cast();
      }
    }
    if (may_overflow && given.smallest <= given.largest &&
        !(holds(dtype, given.smallest) && holds(dtype, given.largest))) {
      throw wrong_value(
          subject(i), "integers that " + name + " can hold",
          std::to_string(holds(dtype, given.smallest) ? given.largest : given.smallest),
          "pass another dtype");
    }
    if (given.largest_real > 0 && !holds(dtype, given.largest_real)) {
      throw wrong_value(subject(i), "numbers that " + name + " can hold",
                        py::repr(py::float_(given.largest_real)), "pass a wider dtype");
    }
    casts_[i] = cast;
  }
  if (one_for_all) std::ranges::fill(casts_, cast);
}

void Samples::prepare_one(std::size_t i, std::size_t block_axis, bool streaming) {
  // Built in place: copying a struct that was just stored stalls on store forwarding.
  kernels::Sample& sample = prepared_.emplace_back();
  sample.data = data(i);
  sample.shape = shape(i).data();
  sample.strides = strides(i);
  sample.cast = casts_[i];
  sample.contiguous = contiguous(i, 0);
  sample.misfit = &misfit_;
  // A plain cast writes through the cache; a planned one streams from a tile.
  const bool needs_plan =
      (streaming && sample.cast) || !(sample.contiguous || contiguous(i, block_axis));
  if (needs_plan && block_axis < axes_) {
    plans_.emplace_back(axes_ - block_axis, sample.shape + block_axis, sample.strides + block_axis,
                        dtype(i).item_size(), sample.cast, dtype_.item_size());
    sample.plan = &plans_.back();
  }
}

void Samples::require_fit() const {
  if (!misfit_) return;
  for (std::size_t i = 0; i < count(); ++i) {
    if (!may_not_fit(dtype(i), dtype_)) continue;
    require_integers_fit(data(i), shape(i), strides(i),
                         find_types(dtype(i), dtype_.name(), subject(i)), subject(i));
  }
}

bool Samples::contiguous(std::size_t i, std::size_t from_axis) const {
  auto expected = static_cast<std::int64_t>(dtype(i).item_size());
  for (std::size_t axis = axes_; axis-- > from_axis;) {
    const std::int64_t size = shape(i)[axis];
    if (size == 0) return true;
    if (size != 1 && strides(i)[axis] != expected) return false;
    expected *= size;
  }
  return true;
}

bool Samples::all_contiguous() const {
  const std::size_t layouts = have_one_layout() ? 1 : count();
  for (std::size_t i = 0; i < layouts; ++i) {
    if (!contiguous(i, 0)) return false;
  }
  return true;
}

}  // namespace pinfeed::bindings
