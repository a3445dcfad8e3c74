// A batch of images that is one tensor: what torch.ops.pinfeed.normalize_images takes, on the CPU
// and on CUDA devices.
#pragma once

#include <cstdint>

#include "kernels/image.h"

namespace pinfeed::kernels {

// `count` images of bytes. Pointers are to the device's memory, but for the constants. Strides are
// in bytes and may be anything: 0, negative, not a multiple of anything.
struct ImageTensor {
  // The value of channel c at row y, column x of image i is images[i * image_stride +
  // y * row_stride + x * column_stride + c * channel_stride]: nothing else is read.
  const std::uint8_t* images = nullptr;
  std::int64_t image_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t channel_stride = 0;
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;

  // One value for each channel, all finite, in the host's memory: read before a call returns. Null
  // for output of bytes.
  const float* scale = nullptr;
  const float* bias = nullptr;

  // (count, channels, height, width) or (count, height, width, channels), contiguous, of any
  // alignment; overlaps no input.
  void* out = nullptr;
  ImageLayout layout = ImageLayout::chw;
  PixelType type = PixelType::float32;  // bytes or floats
};

}  // namespace pinfeed::kernels
