// normalize_images for tensors on the CPU.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "bindings/torch/images.h"
#include "bindings/torch/parallel.h"
#include "dispatch/cpu_features.h"
#include "dispatch/dispatch.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::ImagePadding;
using kernels::ImageSize;
using kernels::ImageSource;

// The most that `sizes` may say.
ImageSize largest_size(const ImageTensor& batch) {
  return {static_cast<std::size_t>(std::min(batch.height, batch.source_height)),
          static_cast<std::size_t>(std::min(batch.width, batch.source_width))};
}

ImageSize size_at(const ImageTensor& batch, std::size_t i) {
  return {static_cast<std::size_t>(batch.sizes[2 * i]),
          static_cast<std::size_t>(batch.sizes[2 * i + 1])};
}

void check_numbers(const ImageTensor& batch) {
  const std::int64_t sources = batch.source_count;
  for (std::int64_t i = 0; batch.indices != nullptr && i < batch.count; ++i) {
    const std::int64_t index = batch.indices[i];
    if (index >= -sources && index < sources) continue;
    throw std::out_of_range(text("normalize_images: indices must be from ", -sources, " to ",
                                 sources - 1, ", got ", index, " at position ", i));
  }
  const ImageSize largest = largest_size(batch);
  for (std::int64_t i = 0; batch.sizes != nullptr && i < batch.count; ++i) {
    const ImageSize size = size_at(batch, static_cast<std::size_t>(i));
    // Negative ones are larger than any.
    if (size.height <= largest.height && size.width <= largest.width) continue;
    fail("normalize_images: sizes must be from (0, 0) to (", largest.height, ", ", largest.width,
         "), got (", batch.sizes[2 * i], ", ", batch.sizes[2 * i + 1], ") at position ", i);
  }
}

std::vector<ImageSource> sources_of(const ImageTensor& batch) {
  std::vector<ImageSource> sources;
  sources.reserve(static_cast<std::size_t>(batch.count));
  for (std::int64_t i = 0; i < batch.count; ++i) {
    std::int64_t index = batch.indices == nullptr ? i : batch.indices[i];
    if (index < 0) index += batch.source_count;
    sources.push_back({.data = batch.images + index * batch.image_stride,
                       .row_stride = batch.row_stride,
                       .column_stride = batch.column_stride,
                       .channel_stride = batch.channel_stride});
  }
  return sources;
}

std::vector<ImageSize> sizes_of(const ImageTensor& batch) {
  std::vector<ImageSize> sizes(static_cast<std::size_t>(batch.count), largest_size(batch));
  for (std::size_t i = 0; batch.sizes != nullptr && i < sizes.size(); ++i) {
    sizes[i] = size_at(batch, i);
  }
  return sizes;
}

void write_on_cpu(const NormalizeCall& call) {
  const ImageTensor& batch = call.batch;
  check_numbers(batch);
  if (call.bytes == 0) return;
  const std::vector<ImageSource> sources = sources_of(batch);
  std::vector<ImageSize> sizes;
  ImagePadding padding{};
  if (batch.is_padded()) {
    sizes = sizes_of(batch);
    padding = {sizes.data(), kernels::Fill(&batch.fill, pixel_size(batch.type))};
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
      .streaming = dispatch::worth_streaming(bytes),
      .padding = batch.is_padded() ? &padding : nullptr,
  };
  const std::size_t rows = work.count * work.height;
  run_rows(rows, bytes / rows, [&](std::size_t begin, std::size_t end) {
    dispatch::active_isa().normalize_images(work, begin, end);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CPU, m) {
  m.impl("normalize_images", TORCH_BOX((&normalize_images<write_on_cpu>)));
  m.impl("normalize_images.out", TORCH_BOX((&normalize_images_out<write_on_cpu>)));
}

}  // namespace pinfeed::torch_ops
