// pad_jagged, pad_jagged_with_mask and unpad_to_jagged for tensors on the CPU.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bindings/torch/jagged.h"
#include "bindings/torch/parallel.h"
#include "dispatch/cpu_features.h"
#include "dispatch/dispatch.h"
#include "kernels/pad.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::Sample;

const std::int64_t* checked_offsets(const JaggedShape& shape, const char* function) {
  const auto* const offsets = static_cast<const std::int64_t*>(shape.offsets.const_data_ptr());
  std::int64_t least = 0;
  for (std::int64_t i = 0; i <= shape.count; ++i) {
    if (offsets[i] < least || offsets[i] > shape.total) {
      fail(function, ": offsets must ascend from at least 0 to at most ", shape.total,
           ", the number of rows, got ", offsets[i], " at position ", i);
    }
    least = offsets[i];
  }
  return offsets;
}

// The samples of a jagged batch, cut to what goes into their boxes.
class Samples {
 public:
  // `inner_items`: of a row, in items of `item_size` bytes.
  Samples(const JaggedShape& shape, const std::int64_t* offsets, const std::byte* values,
          std::int64_t inner_items, std::int64_t item_size)
      : strides_{shape.row_bytes, item_size} {
    const auto count = static_cast<std::size_t>(shape.count);
    shapes_.reserve(2 * count);  // samples point into it
    samples_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t length = std::min(offsets[i + 1] - offsets[i], shape.most);
      const std::int64_t first = shape.left ? offsets[i + 1] - length : offsets[i];
      shapes_.insert(shapes_.end(), {length, inner_items});
      samples_.push_back({.data = values + first * shape.row_bytes,
                          .shape = &shapes_[2 * i],
                          .strides = strides_,
                          .cast = {},
                          .contiguous = true,
                          .plan = nullptr});
    }
  }
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  const Sample* data() const { return samples_.data(); }
  std::size_t count() const { return samples_.size(); }
  std::int64_t length(std::size_t i) const { return samples_[i].shape[0]; }

 private:
  std::vector<std::int64_t> shapes_;
  std::vector<Sample> samples_;
  std::int64_t strides_[2];
};

// Boxes, or time-major steps of all boxes, of rows of `row_bytes`.
template <class Boxes, class Steps>
void run_boxes(const JaggedShape& shape, std::int64_t row_bytes, const Boxes& boxes,
               const Steps& steps) {
  const auto rows = static_cast<std::size_t>(shape.time_major ? shape.length : shape.count);
  const auto others = static_cast<std::size_t>(shape.time_major ? shape.count : shape.length);
  const std::size_t bytes = others * static_cast<std::size_t>(row_bytes);
  if (rows * bytes == 0) return;
  if (shape.time_major) {
    run_rows(rows, bytes, steps);
  } else {
    run_rows(rows, bytes, boxes);
  }
}

kernels::PadBatch boxes_of(const Samples& samples, const JaggedShape& shape,
                           const std::int64_t (&box)[2], const std::int64_t (&inner)[2],
                           const kernels::Fill& fill, const Tensor& out) {
  return {.samples = samples.data(),
          .count = samples.count(),
          .axes = inner[0] == 1 ? 1u : 2u,
          .box = box,
          .inner = inner,
          .left = shape.left,
          .fill = &fill,
          .out = static_cast<std::byte*>(out.mutable_data_ptr()),
          .streaming = false};
}

void write_padded(const PadBatch& batch, const std::int64_t* offsets) {
  const JaggedShape& shape = batch.shape;
  const auto item = static_cast<std::int64_t>(shape.fill.size);
  const std::int64_t items = shape.row_bytes / item;
  const Samples samples(shape, offsets,
                        static_cast<const std::byte*>(batch.values.const_data_ptr()), items, item);
  const kernels::Fill fill(shape.fill.bytes.data(), shape.fill.size);
  const std::int64_t box[] = {shape.length, items}, inner[] = {items, 1};
  kernels::PadBatch work = boxes_of(samples, shape, box, inner, fill, batch.out);
  work.streaming = dispatch::worth_streaming(static_cast<std::size_t>(batch.bytes));
  const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
  run_boxes(
      shape, shape.row_bytes,
      [&](std::size_t begin, std::size_t end) { kernels::pad_samples(work, runs, begin, end); },
      [&](std::size_t begin, std::size_t end) { kernels::pad_steps(work, runs, begin, end); });
}

void write_lengths_and_mask(const PadBatch& batch, const std::int64_t* offsets) {
  const JaggedShape& shape = batch.shape;
  const auto* const unread = static_cast<const std::byte*>(batch.mask->const_data_ptr());
  JaggedShape bytes = shape;
  bytes.row_bytes = 1;
  const Samples samples(bytes, offsets, unread, 1, 1);
  auto* const lengths = static_cast<std::int64_t*>(batch.lengths->mutable_data_ptr());
  for (std::size_t i = 0; i < samples.count(); ++i) lengths[i] = samples.length(i);
  const kernels::Fill fill;
  const std::int64_t box[] = {shape.length, 1}, inner[] = {1, 1};
  const kernels::PadBatch work = boxes_of(samples, shape, box, inner, fill, *batch.mask);
  run_boxes(
      shape, 1,
      [&](std::size_t begin, std::size_t end) { kernels::mask_samples(work, begin, end); },
      [&](std::size_t begin, std::size_t end) { kernels::mask_steps(work, begin, end); });
}

void pad_on_cpu(const PadBatch& batch) {
  const std::int64_t* const offsets =
      checked_offsets(batch.shape, batch.mask ? "pad_jagged_with_mask" : "pad_jagged");
  write_padded(batch, offsets);
  if (batch.mask) write_lengths_and_mask(batch, offsets);
}

// Rows of `out` from one place to the next, written in order.
class Rows {
 public:
  Rows(std::byte* out, std::int64_t row_bytes)
      : to_(out), row_bytes_(static_cast<std::size_t>(row_bytes)) {}

  void skip_to(std::int64_t row) { to_ += static_cast<std::size_t>(row) * row_bytes_; }
  void zeros(std::int64_t rows) {
    const std::size_t bytes = static_cast<std::size_t>(rows) * row_bytes_;
    if (bytes > 0) std::memset(to_, 0, bytes);
    to_ += bytes;
  }
  // `stride`: bytes from one row of the source to the next.
  void copy(const std::byte* from, std::int64_t rows, std::size_t stride) {
    const bool is_block = stride == row_bytes_;
    const std::size_t bytes = is_block ? static_cast<std::size_t>(rows) * row_bytes_ : row_bytes_;
    for (std::int64_t i = 0; i < (is_block && rows > 0 ? 1 : rows); ++i, from += stride) {
      std::memcpy(to_, from, bytes);
      to_ += bytes;
    }
  }

 private:
  std::byte* to_;
  std::size_t row_bytes_;
};

void unpad_on_cpu(const UnpadBatch& batch) {
  const JaggedShape& shape = batch.shape;
  const std::int64_t* const offsets = checked_offsets(shape, "unpad_to_jagged");
  if (batch.bytes == 0) return;
  const auto* const padded = static_cast<const std::byte*>(batch.padded.const_data_ptr());
  auto* const out = static_cast<std::byte*>(batch.out.mutable_data_ptr());

  Rows before(out, shape.row_bytes), after(out, shape.row_bytes);
  before.zeros(offsets[0]);
  after.skip_to(offsets[shape.count]);
  after.zeros(shape.total - offsets[shape.count]);
  const auto count = static_cast<std::size_t>(shape.count);
  if (count == 0) return;  // with boxes of any length
  // From one step of a sample to the next, and from one sample to the next.
  const std::int64_t step = shape.row_bytes * (shape.time_major ? shape.count : 1);
  const std::int64_t sample = shape.row_bytes * (shape.time_major ? 1 : shape.length);
  const std::size_t mean_bytes = static_cast<std::size_t>(batch.bytes) / count;
  run_rows(count, mean_bytes, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::int64_t length = offsets[i + 1] - offsets[i];
      const std::int64_t kept = std::min(length, shape.most), cut = length - kept;
      const std::int64_t first = shape.left ? shape.length - kept : 0;
      Rows rows(out, shape.row_bytes);
      rows.skip_to(offsets[i]);
      if (shape.left) rows.zeros(cut);
      rows.copy(padded + static_cast<std::int64_t>(i) * sample + first * step, kept,
                static_cast<std::size_t>(step));
      if (!shape.left) rows.zeros(cut);
    }
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CPU, m) {
  m.impl("pad_jagged", TORCH_BOX((&pad_jagged<DeviceKind::cpu, pad_on_cpu>)));
  m.impl("pad_jagged.out", TORCH_BOX((&pad_jagged_out<DeviceKind::cpu, pad_on_cpu>)));
  m.impl("pad_jagged_with_mask", TORCH_BOX((&pad_jagged_with_mask<DeviceKind::cpu, pad_on_cpu>)));
  m.impl("pad_jagged_with_mask.out",
         TORCH_BOX((&pad_jagged_with_mask_out<DeviceKind::cpu, pad_on_cpu>)));
  m.impl("unpad_to_jagged", TORCH_BOX((&unpad_to_jagged<DeviceKind::cpu, unpad_on_cpu>)));
  m.impl("unpad_to_jagged.out", TORCH_BOX((&unpad_to_jagged_out<DeviceKind::cpu, unpad_on_cpu>)));
}

}  // namespace pinfeed::torch_ops
