// permute for tensors on a CUDA device.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "bindings/torch/cuda_launch.h"
#include "bindings/torch/permute.h"
#include "cuda/images.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::ImageLayout;

// Bytes of pixels to planes or back.
void write_images(const PermuteCall& call, ImageLayout layout) {
  // The output's axes.
  const bool chw = layout == ImageLayout::chw;
  const std::size_t height = chw ? 2 : 1, width = chw ? 3 : 2, channel = chw ? 1 : 3;
  const Shape &shape = call.shape, &strides = call.strides;
  const Launch launch(call.images);
  const kernels::ImageTensor batch{
      .images = static_cast<const std::uint8_t*>(call.images.const_data_ptr()),
      .source_count = shape[0],
      .source_height = shape[height],
      .source_width = shape[width],
      .image_stride = strides[0],
      .row_stride = strides[height],
      .column_stride = strides[width],
      .channel_stride = strides[channel],
      .count = shape[0],
      .height = shape[height],
      .width = shape[width],
      .channels = shape[channel],
      .out = call.out.mutable_data_ptr(),
      .layout = layout,
      .type = kernels::PixelType::uint8};
  check_launch(cuda::normalize_images(batch, launch.stream()), "permute");
}

// Larger items, and any other order of any number of axes, are torch's own copy.
void write_with_torch(const PermuteCall& call) {
  AtenTensorHandle view = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_as_strided(call.images.get(), call.shape.data(), call.strides.data(), &view));
  Tensor out = call.out;
  torch::stable::copy_(out, Tensor(view));
}

void write_on_cuda(const PermuteCall& call) {
  if (call.item_size == 1 && call.order == Shape{0, 3, 1, 2}) {
    write_images(call, ImageLayout::chw);
  } else if (call.item_size == 1 && call.order == Shape{0, 2, 3, 1}) {
    write_images(call, ImageLayout::hwc);
  } else {
    write_with_torch(call);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CUDA, m) {
  m.impl("permute", TORCH_BOX((&permute<write_on_cuda>)));
  m.impl("permute.out", TORCH_BOX((&permute_out<write_on_cuda>)));
}

}  // namespace pinfeed::torch_ops
