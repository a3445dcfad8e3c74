// pad_jagged, pad_jagged_with_mask and unpad_to_jagged for tensors on a CUDA device.
#include <torch/csrc/stable/library.h>

#include "bindings/torch/cuda_launch.h"
#include "bindings/torch/jagged.h"
#include "cuda/jagged.h"

namespace pinfeed::torch_ops {
namespace {

cuda::JaggedShape shape_of(const JaggedShape& shape) {
  return {
      .offsets = static_cast<const std::int64_t*>(shape.offsets.const_data_ptr()),
      .count = shape.count,
      .total = shape.total,
      .length = shape.length,
      .most = shape.most,
      .row_bytes = shape.row_bytes,
      .left = shape.left,
      .time_major = shape.time_major,
      .fill = {.bytes = shape.fill.bytes, .size = static_cast<std::int64_t>(shape.fill.size)},
  };
}

void pad_on_cuda(const PadBatch& batch) {
  const Launch launch(batch.values);
  cuda::PadJagged work{.shape = shape_of(batch.shape),
                       .values = batch.values.const_data_ptr(),
                       .out = batch.out.mutable_data_ptr()};
  if (batch.mask) {
    work.mask = static_cast<std::uint8_t*>(batch.mask->mutable_data_ptr());
    work.lengths = static_cast<std::int64_t*>(batch.lengths->mutable_data_ptr());
  }
  check_launch(cuda::pad_jagged(work, launch.stream()),
               batch.mask ? "pad_jagged_with_mask" : "pad_jagged");
}

void unpad_on_cuda(const UnpadBatch& batch) {
  if (batch.bytes == 0) return;
  const Launch launch(batch.padded);
  const cuda::UnpadToJagged work{.shape = shape_of(batch.shape),
                                 .padded = batch.padded.const_data_ptr(),
                                 .out = batch.out.mutable_data_ptr()};
  check_launch(cuda::unpad_to_jagged(work, launch.stream()), "unpad_to_jagged");
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CUDA, m) {
  m.impl("pad_jagged", TORCH_BOX((&pad_jagged<DeviceKind::cuda, pad_on_cuda>)));
  m.impl("pad_jagged.out", TORCH_BOX((&pad_jagged_out<DeviceKind::cuda, pad_on_cuda>)));
  m.impl("pad_jagged_with_mask", TORCH_BOX((&pad_jagged_with_mask<DeviceKind::cuda, pad_on_cuda>)));
  m.impl("pad_jagged_with_mask.out",
         TORCH_BOX((&pad_jagged_with_mask_out<DeviceKind::cuda, pad_on_cuda>)));
  m.impl("unpad_to_jagged", TORCH_BOX((&unpad_to_jagged<DeviceKind::cuda, unpad_on_cuda>)));
  m.impl("unpad_to_jagged.out", TORCH_BOX((&unpad_to_jagged_out<DeviceKind::cuda, unpad_on_cuda>)));
}

}  // namespace pinfeed::torch_ops
