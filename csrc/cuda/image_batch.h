// A batch of images on a device: what normalize_images in images.h takes. Needs no CUDA header, so
// that plain C++ can describe and test the work.
#pragma once

#include <cstdint>

#include "kernels/image.h"

namespace pinfeed::cuda {

using kernels::ImageLayout;
using kernels::PixelType;

// Constants of so many channels travel with the launch, by value. More of them have to lie on the
// device already.
inline constexpr std::int64_t kInlineChannels = 32;

// scale and bias hold one value for each channel, all finite. A null pair is for uint8 output.
struct ChannelConstants {
  const float* scale = nullptr;
  const float* bias = nullptr;
  // Whether they lie on the device; in host memory they are read before the call returns, and there
  // are at most kInlineChannels of them.
  bool on_device = false;
};

// `count` images, each with a place of height x width in the output. Pointers are to the device's
// memory, but for constants. Strides are in bytes and may be anything: 0, negative, not a multiple
// of anything. An image is at most as large as the source's images and as its place; it stands at
// the top left, and `fill` is the rest of its place.
struct ImageBatch {
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
  // What an index out of range does, which only the kernel sees. Null: the kernel traps, and every
  // later call of the process fails (cudaErrorLaunchFailure), much as after one in torch's own
  // gathers. Else *bad_indices, an int32 that the caller set to 0, becomes 1, and the image is one
  // of size 0 x 0.
  std::int32_t* bad_indices = nullptr;

  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;

  // (count, 2): height and width of each image of the batch, those out of range taken for the
  // nearest in range. Null: as large as the source's.
  const std::int64_t* sizes = nullptr;

  ChannelConstants constants;
  // The bits of one item of `type`, in the low bytes.
  std::uint32_t fill = 0;

  // (count, channels, height, width) or (count, height, width, channels), contiguous; overlaps
  // no input. Any alignment will do; the fast kernels want a multiple of 16 bytes.
  void* out = nullptr;
  ImageLayout layout = ImageLayout::chw;
  PixelType type = PixelType::float32;

  // (count, height, width): 1 where an image is, 0 where fill is. Null: not wanted.
  std::uint8_t* mask = nullptr;
};

}  // namespace pinfeed::cuda
