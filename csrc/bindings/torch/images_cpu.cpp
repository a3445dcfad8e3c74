// normalize_images for tensors on the CPU.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "bindings/torch/images.h"
#include "bindings/torch/parallel.h"
#include "dispatch/cpu_features.h"
#include "dispatch/dispatch.h"

namespace pinfeed::torch_ops {
namespace {

void write_on_cpu(const NormalizeCall& call) {
  const ImageTensor& batch = call.batch;
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

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CPU, m) {
  m.impl("normalize_images", TORCH_BOX((&normalize_images<write_on_cpu>)));
}

}  // namespace pinfeed::torch_ops
