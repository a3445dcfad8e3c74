// What permute in permute.h takes. Needs no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/image.h"

namespace pinfeed::cuda {

using kernels::ImageLayout;

// Item (i, y, x, c) lies `i * image_stride + y * row_stride + x * column_stride +
// c * channel_stride` bytes after `images`; strides may be anything that keeps items aligned to
// their size (to 8 bytes, those of 16), 0 and negative ones too.
struct Permutation {
  const void* images = nullptr;
  std::int64_t image_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t channel_stride = 0;

  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t item_size = 0;  // bytes: 1, 2, 4, 8 or 16

  // (count, channels, height, width) or (count, height, width, channels), contiguous; does not
  // overlap `images`, and is aligned as they are.
  void* out = nullptr;
  ImageLayout layout = ImageLayout::chw;
};

}  // namespace pinfeed::cuda
