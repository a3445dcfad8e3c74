// permute for tensors on a CUDA device.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "bindings/torch/cuda_launch.h"
#include "bindings/torch/permute.h"
#include "cuda/permute.h"

namespace pinfeed::torch_ops {
namespace {

void write_images(const Permutation& permutation, ImageLayout layout) {
  // The output's axes.
  const bool chw = layout == ImageLayout::chw;
  const std::size_t height = chw ? 2 : 1, width = chw ? 3 : 2, channel = chw ? 1 : 3;
  const Shape &shape = permutation.shape, &strides = permutation.strides;
  const Launch launch(permutation.images);
  const cuda::Permutation work{
      .images = permutation.images.const_data_ptr(),
      .image_stride = strides[0],
      .row_stride = strides[height],
      .column_stride = strides[width],
      .channel_stride = strides[channel],
      .count = shape[0],
      .height = shape[height],
      .width = shape[width],
      .channels = shape[channel],
      .item_size = static_cast<std::int64_t>(permutation.item_size),
      .out = permutation.out.mutable_data_ptr(),
      .layout = layout,
  };
  check_launch(cuda::permute(work, launch.stream()), "permute");
}

// Any other order of any number of axes is torch's own copy.
void write_with_torch(const Permutation& permutation) {
  Shape strides = permutation.strides;
  for (std::int64_t& stride : strides) stride /= static_cast<std::int64_t>(permutation.item_size);
  AtenTensorHandle view = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_as_strided(permutation.images.get(), permutation.shape.data(),
                                               strides.data(), &view));
  Tensor out = permutation.out;
  torch::stable::copy_(out, Tensor(view));
}

void write_on_cuda(const Permutation& permutation) {
  if (permutation.layout) {
    write_images(permutation, *permutation.layout);
  } else {
    write_with_torch(permutation);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CUDA, m) {
  m.impl("permute", TORCH_BOX((&permute<DeviceKind::cuda, write_on_cuda>)));
  m.impl("permute.out", TORCH_BOX((&permute_out<DeviceKind::cuda, write_on_cuda>)));
}

}  // namespace pinfeed::torch_ops
