// pad_jagged, pad_jagged_with_mask and unpad_to_jagged for tensors on a CUDA device.
#include <torch/csrc/stable/library.h>

#include "bindings/torch/cuda_launch.h"
#include "bindings/torch/jagged.h"
#include "cuda/jagged.h"

namespace pinfeed::torch_ops {
namespace {

void pad_on_cuda(const PadCall& call) {
  const Launch launch(call.values);
  check_launch(cuda::pad_jagged(call.batch, launch.stream()),
               call.mask ? "pad_jagged_with_mask" : "pad_jagged");
}

void unpad_on_cuda(const UnpadCall& call) {
  if (call.bytes == 0) return;
  const Launch launch(call.padded);
  check_launch(cuda::unpad_to_jagged(call.batch, launch.stream()), "unpad_to_jagged");
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CUDA, m) {
  m.impl("pad_jagged", TORCH_BOX((&pad_jagged<pad_on_cuda>)));
  m.impl("pad_jagged.out", TORCH_BOX((&pad_jagged_out<pad_on_cuda>)));
  m.impl("pad_jagged_with_mask", TORCH_BOX((&pad_jagged_with_mask<pad_on_cuda>)));
  m.impl("pad_jagged_with_mask.out", TORCH_BOX((&pad_jagged_with_mask_out<pad_on_cuda>)));
  m.impl("unpad_to_jagged", TORCH_BOX((&unpad_to_jagged<unpad_on_cuda>)));
  m.impl("unpad_to_jagged.out", TORCH_BOX((&unpad_to_jagged_out<unpad_on_cuda>)));
}

}  // namespace pinfeed::torch_ops
