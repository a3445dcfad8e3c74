#include "bindings/python/sample_batch.h"

#include "bindings/python/scalar_types.h"

namespace pinfeed::bindings {

void SampleBatch::add(std::size_t i, std::size_t block_axis, bool streaming) {
  kernels::Sample sample{.data = sequences_.data(i),
                         .shape = sequences_.shape(i),
                         .strides = sequences_.strides(i),
                         .cast = casts_[i],
                         .contiguous = contiguous(i, 0),
                         .plan = nullptr,
                         .misfit = &misfit_};
  // A plain cast writes through the cache; a planned one has a tile to stream from.
  const bool needs_plan = !contiguous(i, block_axis) || (streaming && sample.cast);
  if (needs_plan && block_axis < sequences_.axes()) {
    const Types types = find_types(sequences_.dtype(i), dtype_.name(), "cast", scale_);
    plans_.emplace_back(types.cast(), types.from.type, types.to.type,
                        sequences_.axes() - block_axis, sample.shape + block_axis,
                        sample.strides + block_axis);
    sample.plan = &plans_.back();
  }
  samples_.push_back(sample);
}

void SampleBatch::require_fit(const std::string& name) const {
  if (!misfit_) return;
  for (std::size_t i = 0; i < sequences_.count(); ++i) {
    if (!may_not_fit(sequences_.dtype(i), dtype_)) continue;
    require_integers_fit(sequences_.data(i), {sequences_.shape(i), sequences_.axes()},
                         sequences_.strides(i),
                         find_types(sequences_.dtype(i), dtype_.name(), name),
                         Subject{name, static_cast<std::int64_t>(i)});
  }
}

bool SampleBatch::contiguous(std::size_t i, std::size_t from_axis) const {
  auto expected = static_cast<std::int64_t>(sequences_.dtype(i).item_size());
  for (std::size_t axis = sequences_.axes(); axis-- > from_axis;) {
    const std::int64_t size = sequences_.shape(i)[axis];
    if (size == 0) return true;
    if (size != 1 && sequences_.strides(i)[axis] != expected) return false;
    expected *= size;
  }
  return true;
}

void check_no_overlap(const Output& output, std::size_t bytes, const Sequences& sequences,
                      const std::string& function) {
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    check_no_overlap(output, bytes, sequences.extent_of(i), function);
  }
}

}  // namespace pinfeed::bindings
