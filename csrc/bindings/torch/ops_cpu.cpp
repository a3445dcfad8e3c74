// The ops for tensors on the CPU, on torch's threads.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <vector>

#include "bindings/torch/ops.h"
#include "dispatch/cpu_features.h"
#include "dispatch/dispatch.h"
#include "kernels/pack.h"
#include "kernels/pad.h"
#include "kernels/strided_copy.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::JaggedShape;
using kernels::Sample;

// Calls body(begin, end) over [0, rows), each row `row_bytes` of output, on torch.get_num_threads()
// threads, or on none but the caller's in a worker. The body must not throw.
template <class Body>
void run_rows(std::size_t rows, std::size_t row_bytes, const Body& body) {
  // As in bindings/python/parallel.h: waking a thread takes as long as writing this much.
  constexpr std::size_t kChunkBytes = std::size_t{512} << 10;
  const std::size_t chunk =
      std::max<std::size_t>(kChunkBytes / std::max<std::size_t>(row_bytes, 1), 1);
  if (rows <= chunk) {
    body(std::size_t{0}, rows);
    return;
  }
  torch::stable::parallel_for(0, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(chunk),
                              [&](std::int64_t begin, std::int64_t end) {
                                body(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(end));
                              });
}

void normalize_on_cpu(const NormalizeCall& call) {
  const kernels::ImageTensor& batch = call.batch;
  if (call.bytes == 0) return;
  std::vector<kernels::ImageSource> sources;
  sources.reserve(static_cast<std::size_t>(batch.count));
  for (std::int64_t i = 0; i < batch.count; ++i) {
    sources.push_back({.data = batch.images + i * batch.image_stride,
                       .row_stride = batch.row_stride,
                       .column_stride = batch.column_stride,
                       .channel_stride = batch.channel_stride});
  }
  const auto bytes = static_cast<std::size_t>(call.bytes);
  const kernels::ImageBatch work{
      .sources = sources.data(),
      .count = sources.size(),
      .height = static_cast<std::size_t>(batch.height),
      .width = static_cast<std::size_t>(batch.width),
      .channels = static_cast<std::size_t>(batch.channels),
      .scale = batch.scale,
      .bias = batch.bias,
      .out = batch.out,
      .out_layout = batch.layout,
      .out_type = batch.type,
      .streaming = dispatch::worth_streaming_pixels(bytes),
  };
  const std::size_t rows = work.count * work.height;
  run_rows(rows, bytes / rows, [&](std::size_t begin, std::size_t end) {
    dispatch::active_isa().normalize_images(work, begin, end);
  });
}

void permute_on_cpu(const PermuteCall& call) {
  if (call.bytes == 0) return;
  const bool streaming = dispatch::worth_streaming(static_cast<std::size_t>(call.bytes));
  Shape strides = call.strides;
  for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(call.item_size);
  const kernels::StridedCopy copy(call.shape.size(), call.shape.data(), strides.data(),
                                  call.item_size);
  run_rows(copy.rows(), copy.row_bytes(), [&](std::size_t begin, std::size_t end) {
    copy.run(*dispatch::active_isa().permute, call.images.const_data_ptr(),
             call.out.mutable_data_ptr(), begin, end, streaming);
  });
}

void check_offsets(const JaggedShape& shape, const char* function) {
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i <= shape.count; ++i) {
    const std::int64_t offset = shape.offsets[i];
    if (offset < previous || offset > shape.total) {
      fail(function, ": offsets must not decrease and must be from 0 to ", shape.total,
           ", the number of rows, got ", offset, " at position ", i);
    }
    previous = offset;
  }
}

// The number of rows of a sample in the padded batch.
std::int64_t kept_rows(const JaggedShape& shape, std::size_t i) {
  return std::min(shape.offsets[i + 1] - shape.offsets[i], shape.max_rows);
}

// The samples of a batch for the kernels, with one axis each.
class KeptSamples {
 public:
  // `items`: per row. data(i, rows): the address of the rows of sample i in the padded batch.
  template <class Data>
  KeptSamples(const JaggedShape& shape, std::int64_t items, const Data& data) {
    const auto count = static_cast<std::size_t>(shape.count);
    items_.resize(count);  // samples point into it
    samples_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t kept = kept_rows(shape, i);
      items_[i] = kept * items;
      samples_.push_back({.data = data(i, kept),
                          .shape = &items_[i],
                          .strides = nullptr,
                          .cast = {},
                          .contiguous = true});
    }
  }
  KeptSamples(const KeptSamples&) = delete;
  KeptSamples& operator=(const KeptSamples&) = delete;

  const Sample* data() const { return samples_.data(); }
  std::size_t count() const { return samples_.size(); }

 private:
  std::vector<std::int64_t> items_;
  std::vector<Sample> samples_;
};

// Writes padded samples of `items` items each.
void write_boxes(const KeptSamples& samples, std::int64_t items, bool left,
                 const kernels::Fill& fill, void* out, bool streaming) {
  const std::int64_t inner = 1;
  const kernels::PadBatch batch{.samples = samples.data(),
                                .count = samples.count(),
                                .axes = 1,
                                .box = &items,
                                .inner = &inner,
                                .left = left,
                                .fill = &fill,
                                .out = static_cast<std::byte*>(out),
                                .streaming = streaming};
  if (batch.count * batch.box_bytes() == 0) return;
  const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
  run_rows(batch.count, batch.box_bytes(), [&](std::size_t begin, std::size_t end) {
    kernels::pad_samples(batch, runs, begin, end);
  });
}

void pad_on_cpu(const PadCall& call) {
  const kernels::PadJagged& batch = call.batch;
  const JaggedShape& shape = batch.shape;
  check_offsets(shape, "pad_jagged");
  const std::int64_t item_size = shape.fill.size, items = shape.row_bytes / item_size;
  const KeptSamples samples(shape, items, [&](std::size_t i, std::int64_t kept) {
    const std::int64_t first = shape.left ? shape.offsets[i + 1] - kept : shape.offsets[i];
    return static_cast<const std::byte*>(batch.values) + first * shape.row_bytes;
  });
  write_boxes(samples, shape.length * items, shape.left, kernels::Fill(shape.fill), batch.out,
              dispatch::worth_streaming(static_cast<std::size_t>(call.bytes)));
}

// Concatenates the samples, with gaps for rows that were truncated or belong to no sample.
void unpad_on_cpu(const UnpadCall& call) {
  const kernels::UnpadToJagged& batch = call.batch;
  const JaggedShape& shape = batch.shape;
  check_offsets(shape, "unpad_to_jagged");
  if (call.bytes == 0) return;
  const std::int64_t item_size = shape.fill.size, items = shape.row_bytes / item_size;
  std::vector<kernels::Segment> segments;
  segments.reserve(static_cast<std::size_t>(shape.count));
  const KeptSamples samples(shape, items, [&](std::size_t i, std::int64_t kept) {
    const std::int64_t begin = shape.left ? shape.offsets[i + 1] - kept : shape.offsets[i];
    segments.push_back({.begin = begin, .data = kept, .end = begin + kept, .number = 0});
    const std::int64_t first = shape.left ? shape.length - kept : 0;
    const std::int64_t row = static_cast<std::int64_t>(i) * shape.length + first;
    return static_cast<const std::byte*>(batch.padded) + row * shape.row_bytes;
  });
  const kernels::Fill zeros(static_cast<std::size_t>(item_size));
  const kernels::PackBatch work{
      .samples = samples.data(),
      .segments = segments.data(),
      .count = segments.size(),
      .tokens = shape.total,
      .row_items = static_cast<std::size_t>(items),
      .fill = &zeros,
      .first = nullptr,
      .out = static_cast<std::byte*>(batch.out),
      .streaming = dispatch::worth_streaming(static_cast<std::size_t>(call.bytes))};
  const std::int64_t before = segments.empty() ? shape.total : segments[0].begin;
  zeros.write(batch.out, static_cast<std::size_t>(before * items), false);
  const kernels::PermuteRuns& runs = *dispatch::active_isa().permute;
  if (segments.empty()) return;
  run_rows(
      segments.size(), static_cast<std::size_t>(call.bytes) / segments.size(),
      [&](std::size_t begin, std::size_t end) { kernels::pack_samples(work, runs, begin, end); });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CPU, m) {
  m.impl("normalize_images", TORCH_BOX((&Op<check_images, normalize_on_cpu>::run)));
  m.impl("permute", TORCH_BOX((&Op<check_permute, permute_on_cpu>::run)));
  m.impl("pad_jagged", TORCH_BOX((&Op<check_pad, pad_on_cpu>::run)));
  m.impl("unpad_to_jagged", TORCH_BOX((&Op<check_unpad, unpad_on_cpu>::run)));
}

}  // namespace pinfeed::torch_ops

// For tests: like the Python module, the library has its own copy of the core, with its own table
// of kernels, and pinfeed.testing.use_isa forces both.
extern "C" __attribute__((visibility("default"))) bool pinfeed_ops_force_isa(const char* name) {
  return pinfeed::dispatch::force_isa(name);
}
