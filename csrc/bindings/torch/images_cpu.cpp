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

std::vector<ImageSource> sources_of(const ImageBatch& batch) {
  std::vector<ImageSource> sources;
  sources.reserve(static_cast<std::size_t>(batch.count));
  const auto* const data = static_cast<const std::uint8_t*>(batch.images.const_data_ptr());
  const auto* const indices =
      batch.indices ? static_cast<const std::int64_t*>(batch.indices->const_data_ptr()) : nullptr;
  for (std::int64_t i = 0; i < batch.count; ++i) {
    std::int64_t index = indices == nullptr ? i : indices[i];
    if (index < -batch.source_count || index >= batch.source_count) {
      throw std::out_of_range(text("normalize_images: indices must be from ", -batch.source_count,
                                   " to ", batch.source_count - 1, ", got ", index, " at position ",
                                   i));
    }
    if (index < 0) index += batch.source_count;
    sources.push_back({.data = data + index * batch.image_stride,
                       .row_stride = batch.row_stride,
                       .column_stride = batch.column_stride,
                       .channel_stride = batch.channel_stride});
  }
  return sources;
}

std::vector<ImageSize> sizes_of(const ImageBatch& batch) {
  const std::int64_t height = std::min(batch.height, batch.source_height);
  const std::int64_t width = std::min(batch.width, batch.source_width);
  const ImageSize largest{static_cast<std::size_t>(height), static_cast<std::size_t>(width)};
  std::vector<ImageSize> sizes(static_cast<std::size_t>(batch.count), largest);
  if (!batch.sizes) return sizes;
  const auto* given = static_cast<const std::int64_t*>(batch.sizes->const_data_ptr());
  for (std::size_t i = 0; i < sizes.size(); ++i, given += 2) {
    if (given[0] < 0 || given[0] > height || given[1] < 0 || given[1] > width) {
      fail("normalize_images: sizes must be from (0, 0) to (", height, ", ", width, "), got (",
           given[0], ", ", given[1], ") at position ", i);
    }
    sizes[i] = {static_cast<std::size_t>(given[0]), static_cast<std::size_t>(given[1])};
  }
  return sizes;
}

void write_on_cpu(const ImageBatch& batch) {
  const std::vector<ImageSource> sources = sources_of(batch);
  std::vector<ImageSize> sizes;
  ImagePadding padding{};
  if (batch.is_padded()) {
    sizes = sizes_of(batch);
    padding = {sizes.data(), kernels::Fill(batch.fill.bytes.data(), batch.fill.size)};
  }
  const auto bytes = static_cast<std::size_t>(batch.bytes);
  const kernels::ImageBatch work{
      .sources = sources.data(),
      .count = sources.size(),
      .height = static_cast<std::size_t>(batch.height),
      .width = static_cast<std::size_t>(batch.width),
      .channels = static_cast<std::size_t>(batch.channels),
      .scale = batch.scale.data(),
      .bias = batch.bias.data(),
      .out = batch.out.mutable_data_ptr(),
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
  m.impl("normalize_images", TORCH_BOX((&normalize_images<DeviceKind::cpu, write_on_cpu>)));
  m.impl("normalize_images.out", TORCH_BOX((&normalize_images_out<DeviceKind::cpu, write_on_cpu>)));
}

}  // namespace pinfeed::torch_ops
