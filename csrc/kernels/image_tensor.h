// A batch of images that is one tensor: what torch.ops.pinfeed.normalize_images takes, on the CPU
// and on CUDA devices.
#pragma once

#include <cstdint>

#include "kernels/image.h"

namespace pinfeed::kernels {

// `count` images of bytes, each with a place of height x width in the output. Pointers are to the
// device's memory, but for the constants. Strides are in bytes and may be anything: 0, negative,
// not a multiple of anything. An image is at most as large as the source's images and as its place;
// it stands at the top left, and `fill` is the rest of its place.
struct ImageTensor {
  // The value of channel c at row y, column x of source image i is images[i * image_stride +
  // y * row_stride + x * column_stride + c * channel_stride], for i < source_count,
  // y < source_height, x < source_width: nothing else is read.
  const std::uint8_t* images = nullptr;
  std::int64_t source_count = 0;
  std::int64_t source_height = 0;
  std::int64_t source_width = 0;
  std::int64_t image_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t channel_stride = 0;

  // Which source image becomes image i of the batch, `count` of them; negative ones count from the
  // end. Null: image i does, and count is at most source_count.
  const std::int64_t* indices = nullptr;
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;

  // (count, 2): height and width of each image of the batch. Null: as large as the source's.
  const std::int64_t* sizes = nullptr;

  // One value for each channel, all finite, in the host's memory: read before a call returns. Null
  // for output of bytes.
  const float* scale = nullptr;
  const float* bias = nullptr;
  std::uint32_t fill = 0;  // the bits of one item of `type`, in the low bytes

  // (count, channels, height, width) or (count, height, width, channels), contiguous, of any
  // alignment; overlaps no input.
  void* out = nullptr;
  ImageLayout layout = ImageLayout::chw;
  PixelType type = PixelType::float32;  // bytes or floats

  // Whether there may be anything but data.
  bool is_padded() const {
    return sizes != nullptr || height != source_height || width != source_width;
  }
};

}  // namespace pinfeed::kernels
