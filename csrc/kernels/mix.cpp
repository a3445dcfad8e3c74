#include "kernels/mix.h"

#include <vector>

namespace pinfeed::kernels {

void mix(const MixedBatch& batch, std::size_t begin, std::size_t end) {
  const auto [images, count, values, share, before] = batch;
  const float* const last_image = images + (count - 1) * values;
  const std::vector<float> last(last_image + begin, last_image + end);
  // From the last one on: what an image is mixed with has not been mixed yet.
  for (std::size_t i = count; i-- > 0;) {
    float* const image = images + i * values + begin;
    const float* const other = i > 0 ? image - values : last.data();
    for (std::size_t k = 0; k < end - begin; ++k) image[k] = image[k] * share + other[k] * before;
  }
}

}  // namespace pinfeed::kernels
