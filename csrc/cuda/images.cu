#include "cuda/image_plan.h"
#include "cuda/images.h"
#include "cuda/launch.cuh"

namespace pinfeed::cuda {
namespace {

template <PixelType kType>
cudaError_t launch_images(const ImageTensor& batch, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  visit_image_work<kType>(batch, [&](const auto& work) { error = launch(work, stream); });
  return error;
}

}  // namespace

cudaError_t normalize_images(const ImageTensor& batch, cudaStream_t stream) {
  switch (batch.type) {
    case PixelType::float32:
      return launch_images<PixelType::float32>(batch, stream);
    case PixelType::float16:
      return launch_images<PixelType::float16>(batch, stream);
    case PixelType::bfloat16:
      return launch_images<PixelType::bfloat16>(batch, stream);
    case PixelType::uint8:
      return launch_images<PixelType::uint8>(batch, stream);
    default:  // masks are made on the host
      return cudaErrorInvalidValue;
  }
}

}  // namespace pinfeed::cuda
