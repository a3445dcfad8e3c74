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

const std::int64_t* integers(const std::optional<Tensor>& tensor) {
  return tensor ? static_cast<const std::int64_t*>(tensor->const_data_ptr()) : nullptr;
}

// The most that `sizes` may say.
ImageSize largest_size(const ImageBatch& batch) {
  return {static_cast<std::size_t>(std::min(batch.height, batch.source_height)),
          static_cast<std::size_t>(std::min(batch.width, batch.source_width))};
}

ImageSize size_at(const std::int64_t* sizes, std::size_t i) {
  return {static_cast<std::size_t>(sizes[2 * i]), static_cast<std::size_t>(sizes[2 * i + 1])};
}

void check_indices(const ImageBatch& batch) {
  const std::int64_t* const indices = integers(batch.indices);
  if (indices == nullptr) return;
  for (std::int64_t i = 0; i < batch.count; ++i) {
    if (indices[i] < -batch.source_count || indices[i] >= batch.source_count) {
      throw std::out_of_range(text("normalize_images: indices must be from ", -batch.source_count,
                                   " to ", batch.source_count - 1, ", got ", indices[i],
                                   " at position ", i));
    }
  }
}

void check_sizes(const ImageBatch& batch) {
  const std::int64_t* const sizes = integers(batch.sizes);
  if (sizes == nullptr) return;
  const ImageSize largest = largest_size(batch);
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch.count); ++i) {
    const ImageSize size = size_at(sizes, i);  // negative ones are larger than any
    if (size.height > largest.height || size.width > largest.width) {
      fail("normalize_images: sizes must be from (0, 0) to (", largest.height, ", ", largest.width,
           "), got (", sizes[2 * i], ", ", sizes[2 * i + 1], ") at position ", i);
    }
  }
}

std::vector<ImageSource> sources_of(const ImageBatch& batch) {
  std::vector<ImageSource> sources;
  sources.reserve(static_cast<std::size_t>(batch.count));
  const auto* const data = static_cast<const std::uint8_t*>(batch.images.const_data_ptr());
  const std::int64_t* const indices = integers(batch.indices);
  for (std::int64_t i = 0; i < batch.count; ++i) {
    std::int64_t index = indices == nullptr ? i : indices[i];
    if (index < 0) index += batch.source_count;
    sources.push_back({.data = data + index * batch.image_stride,
                       .row_stride = batch.row_stride,
                       .column_stride = batch.column_stride,
                       .channel_stride = batch.channel_stride});
  }
  return sources;
}

std::vector<ImageSize> sizes_of(const ImageBatch& batch) {
  std::vector<ImageSize> sizes(static_cast<std::size_t>(batch.count), largest_size(batch));
  const std::int64_t* const given = integers(batch.sizes);
  if (given == nullptr) return sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = size_at(given, i);
  return sizes;
}

void write_on_cpu(const ImageBatch& batch) {
  check_indices(batch);
  check_sizes(batch);
  if (batch.bytes == 0) return;
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
