// normalize_images for tensors on a CUDA device.
#include <torch/csrc/stable/library.h>

#include <cstring>

#include "bindings/torch/cuda_launch.h"
#include "bindings/torch/device_constants.h"
#include "bindings/torch/images.h"
#include "cuda/images.h"

namespace pinfeed::torch_ops {
namespace {

const std::int64_t* integers(const std::optional<Tensor>& tensor) {
  return tensor ? static_cast<const std::int64_t*>(tensor->const_data_ptr()) : nullptr;
}

void write_on_cuda(const ImageBatch& batch) {
  if (batch.bytes == 0) return;
  const Launch launch(batch.images);
  cuda::ImageBatch work{
      .images = static_cast<const std::uint8_t*>(batch.images.const_data_ptr()),
      .source_count = batch.source_count,
      .source_height = batch.source_height,
      .source_width = batch.source_width,
      .image_stride = batch.image_stride,
      .row_stride = batch.row_stride,
      .column_stride = batch.column_stride,
      .channel_stride = batch.channel_stride,
      .indices = integers(batch.indices),
      .count = batch.count,
      .height = batch.height,
      .width = batch.width,
      .channels = batch.channels,
      .sizes = integers(batch.sizes),
      .constants = {},
      .out = batch.out.mutable_data_ptr(),
      .layout = batch.layout,
      .type = batch.type,
  };
  std::memcpy(&work.fill, batch.fill.bytes.data(), sizeof(work.fill));
  if (batch.type != PixelType::uint8) {
    work.constants = {.scale = batch.scale.data(), .bias = batch.bias.data()};
    if (batch.channels > cuda::kInlineChannels) {
      work.constants = device_constants(batch.scale, batch.bias, batch.images);
    }
  }
  check_launch(cuda::normalize_images(work, launch.stream()), "normalize_images");
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CUDA, m) {
  m.impl("normalize_images", TORCH_BOX((&normalize_images<DeviceKind::cuda, write_on_cuda>)));
  m.impl("normalize_images.out",
         TORCH_BOX((&normalize_images_out<DeviceKind::cuda, write_on_cuda>)));
}

}  // namespace pinfeed::torch_ops
