// normalize_images for tensors on a CUDA device.
#include <torch/csrc/stable/library.h>

#include "bindings/torch/cuda_launch.h"
#include "bindings/torch/images.h"
#include "cuda/images.h"

namespace pinfeed::torch_ops {
namespace {

void write_on_cuda(const NormalizeCall& call) {
  if (call.bytes == 0) return;
  if (call.batch.scale != nullptr && call.batch.channels > cuda::kMostChannels) {
    fail("normalize_images: images on a CUDA device must have at most ", cuda::kMostChannels,
         " channels, got ", call.batch.channels, "; pass their parts, or normalize on the CPU");
  }
  const Launch launch(call.images);
  check_launch(cuda::normalize_images(call.batch, launch.stream()), "normalize_images");
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CUDA, m) {
  m.impl("normalize_images", TORCH_BOX((&normalize_images<write_on_cuda>)));
  m.impl("normalize_images.out", TORCH_BOX((&normalize_images_out<write_on_cuda>)));
}

}  // namespace pinfeed::torch_ops
