#include "cuda/images.h"
#include "cuda/launch.cuh"
#include "cuda/permute.h"
#include "cuda/permute_plan.h"

namespace pinfeed::cuda {
namespace {

template <int kBytes>
cudaError_t launch_permutation(const Permutation& permutation, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  visit_permute_work<kBytes>(permutation, [&](const auto& work) { error = launch(work, stream); });
  return error;
}

}  // namespace

cudaError_t permute(const Permutation& permutation, cudaStream_t stream) {
  if (!is_valid(permutation)) return cudaErrorInvalidValue;
  if (items_of(permutation) == 0) return cudaSuccess;
  ImageBatch bytes;
  if (as_bytes(permutation, bytes)) return normalize_images(bytes, stream);
  switch (permutation.item_size) {
    case 2:
      return launch_permutation<2>(permutation, stream);
    case 4:
      return launch_permutation<4>(permutation, stream);
    case 8:
      return launch_permutation<8>(permutation, stream);
    default:
      return launch_permutation<16>(permutation, stream);
  }
}

}  // namespace pinfeed::cuda
