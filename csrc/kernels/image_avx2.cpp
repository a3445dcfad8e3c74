// Image primitives for AVX2 + FMA + F16C.
#include "kernels/image_avx2.h"

namespace pinfeed::kernels {

void pick_pixels_avx2(const PixelRows& from, std::size_t channels, std::size_t item,
                      std::uint8_t* to, std::ptrdiff_t to_stride) {
  pick_run<Avx2>(from, channels, item, to, to_stride);
}

void normalize_images_avx2(const ImageBatch& batch, std::size_t row_begin, std::size_t row_end) {
  static constexpr ImageRuns runs = make_image_runs<Avx2>();
  walk_images(runs, batch, row_begin, row_end);
}

}  // namespace pinfeed::kernels
