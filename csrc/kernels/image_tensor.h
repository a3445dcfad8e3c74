// A batch of images in one tensor: the input of torch.ops.pinfeed.normalize_images, on the CPU and
// on CUDA devices.
#pragma once

#include <cstdint>

#include "kernels/image.h"

namespace pinfeed::kernels {

// `count` images of bytes. Pointers are to the device's memory, except the constants. Strides are
// in bytes and may be anything: 0, negative, unaligned.
struct ImageTensor {
  // The value of channel c at row y, column x of image i is images[i * image_stride +
  // y * row_stride + x * column_stride + c * channel_stride]. Nothing else is read.
  const std::uint8_t* images = nullptr;
  std::int64_t image_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t channel_stride = 0;
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;

  // One finite value per channel, in the host's memory; they are read before a call returns. Null
  // for byte outputs.
  const float* scale = nullptr;
  const float* bias = nullptr;

  // (count, channels, height, width) or (count, height, width, channels), contiguous, aligned to 16
  // bytes, as torch allocates it; overlaps no input.
  void* out = nullptr;
  ImageLayout layout = ImageLayout::chw;
  PixelType type = PixelType::float32;  // bytes or floats
};

}  // namespace pinfeed::kernels
