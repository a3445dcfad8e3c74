// permute for tensors on the CPU.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "bindings/torch/parallel.h"
#include "bindings/torch/permute.h"
#include "dispatch/cpu_features.h"
#include "dispatch/dispatch.h"
#include "kernels/strided_copy.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::ImageLayout;

// Bytes of pixels to planes or back, 4-D, which the image kernels shuffle with vectors.
void write_image_bytes(const Permutation& permutation, ImageLayout layout, bool streaming) {
  // The output's axes.
  const bool chw = layout == ImageLayout::chw;
  const std::size_t height = chw ? 2 : 1, width = chw ? 3 : 2, channel = chw ? 1 : 3;
  const auto size = [&](std::size_t axis) {
    return static_cast<std::size_t>(permutation.shape[axis]);
  };
  const auto* const data = static_cast<const std::uint8_t*>(permutation.images.const_data_ptr());
  std::vector<kernels::ImageSource> sources;
  sources.reserve(size(0));
  for (std::int64_t i = 0; i < permutation.shape[0]; ++i) {
    sources.push_back({.data = data + i * permutation.strides[0],
                       .row_stride = permutation.strides[height],
                       .column_stride = permutation.strides[width],
                       .channel_stride = permutation.strides[channel]});
  }
  const std::vector<float> none(size(channel));
  const kernels::ImageBatch work{.sources = sources.data(),
                                 .count = sources.size(),
                                 .height = size(height),
                                 .width = size(width),
                                 .channels = size(channel),
                                 .scale = none.data(),
                                 .bias = none.data(),
                                 .out = permutation.out.mutable_data_ptr(),
                                 .out_layout = layout,
                                 .out_type = kernels::PixelType::uint8,
                                 .streaming = streaming};
  const std::size_t rows = work.count * work.height;
  run_rows(rows, static_cast<std::size_t>(permutation.bytes) / rows,
           [&](std::size_t begin, std::size_t end) {
             dispatch::active_isa().normalize_images(work, begin, end);
           });
}

void write_on_cpu(const Permutation& permutation) {
  const bool streaming = dispatch::worth_streaming(static_cast<std::size_t>(permutation.bytes));
  if (permutation.layout && permutation.item_size == 1) {
    write_image_bytes(permutation, *permutation.layout, streaming);
    return;
  }
  const kernels::StridedCopy copy(permutation.images.const_data_ptr(), permutation.shape.size(),
                                  permutation.shape.data(), permutation.strides.data(),
                                  permutation.item_size, permutation.out.mutable_data_ptr());
  run_rows(copy.rows(), copy.row_bytes(), [&](std::size_t begin, std::size_t end) {
    copy.run(*dispatch::active_isa().permute, begin, end, streaming);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CPU, m) {
  m.impl("permute", TORCH_BOX((&permute<DeviceKind::cpu, write_on_cpu>)));
  m.impl("permute.out", TORCH_BOX((&permute_out<DeviceKind::cpu, write_on_cpu>)));
}

}  // namespace pinfeed::torch_ops
