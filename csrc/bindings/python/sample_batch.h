// Sequences, made ready for the kernels.
#pragma once

#include <string>
#include <vector>

#include "bindings/python/output.h"
#include "bindings/python/sequences.h"
#include "kernels/sample.h"

namespace pinfeed::bindings {

// One kernels::Sample for each sequence, with the casts to one dtype and the plans that it needs.
class SampleBatch {
 public:
  // `sequences` stays where it is and unchanged from now on. block_axis(sample): the axis from
  // which on a sample is written as one block. `streaming`: whether the output is.
  template <class BlockAxis>
  SampleBatch(const Sequences& sequences, DType dtype, Scale scale, bool streaming,
              const BlockAxis& block_axis)
      : sequences_(sequences),
        dtype_(dtype),
        scale_(scale),
        casts_(sequences.casts_to(dtype, scale)) {
    samples_.reserve(sequences.count());
    plans_.reserve(sequences.count());  // samples point into it
    for (std::size_t i = 0; i < sequences.count(); ++i) add(i, block_axis(i), streaming);
  }
  SampleBatch(const SampleBatch&) = delete;
  SampleBatch& operator=(const SampleBatch&) = delete;

  const kernels::Sample* samples() const { return samples_.data(); }

  // After they were written: throws ValueError for an integer that did not fit.
  void require_fit(const std::string& name) const;

 private:
  void add(std::size_t i, std::size_t block_axis, bool streaming);
  bool contiguous(std::size_t i, std::size_t from_axis) const;

  const Sequences& sequences_;
  DType dtype_;
  Scale scale_;
  std::vector<kernels::Cast> casts_;
  std::vector<kernels::Sample> samples_;
  std::vector<kernels::StridedCast> plans_;
  bool misfit_ = false;  // set by the kernels
};

// Throws ValueError if the output overlaps a sequence.
void check_no_overlap(const Output& output, std::size_t bytes, const Sequences& sequences,
                      const std::string& function);

}  // namespace pinfeed::bindings
