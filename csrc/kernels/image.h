// Images: normalized and permuted in one pass.
//
//   out[i, y, x, c] = round_to_type(fma(float(in[i, y, x, c]), scale[c], bias[c]))
//
// The float32 result of the fused multiply-add is rounded once; 16-bit outputs round that float32
// to nearest, ties to even; a NaN stays a NaN. Integer outputs copy the input's values and ignore
// scale and bias. Every instruction set gives the same bits. An image may be smaller than its slot
// in the batch: then it is at the top left, and one value fills the rest. Or the slot shows a crop
// that extends beyond the image: then border pixels fill the outside, and are normalized like all
// others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cast.h"
#include "kernels/fill.h"

namespace pinfeed::kernels {

// Output types. Integers may be signed or not: their values fit.
enum class PixelType : std::uint8_t { float32, float16, bfloat16, uint8, int16, int32, int64 };
inline constexpr std::size_t kPixelTypes = 4;  // float32 to uint8: bytes convert to these

constexpr std::size_t pixel_size(PixelType type) {
  switch (type) {
    case PixelType::int64:
      return 8;
    case PixelType::float32:
    case PixelType::int32:
      return 4;
    case PixelType::float16:
    case PixelType::bfloat16:
    case PixelType::int16:
      return 2;
    case PixelType::uint8:
      return 1;
  }
  return 0;
}

// The type under which items of a size are copied, regardless of their meaning.
struct Copied {
  ScalarType in;
  PixelType out;
};

constexpr Copied copied_as(std::size_t item_size) {
  if (item_size == 8) return {ScalarType::int64, PixelType::int64};
  if (item_size == 4) return {ScalarType::int32, PixelType::int32};
  if (item_size == 2) return {ScalarType::int16, PixelType::int16};
  return {ScalarType::uint8, PixelType::uint8};
}

// The memory layout of channels: HWC interleaves them pixel by pixel, CHW has a plane per channel.
enum class ImageLayout : std::uint8_t { chw, hwc };

// The pixels outside an image: one value; the nearest pixel of the image; or the image mirrored
// about its outermost pixels, which are not repeated.
enum class Border : std::uint8_t { constant, edge, reflect };

// A crop that extends beyond its image; its size is the slot's. Row y of the crop is row top + y of
// the image; columns correspond. With Border::reflect, rows and columns are within
// -size < i < 2 * size - 1. The image has at least one pixel unless the border is constant.
struct ImageCrop {
  std::ptrdiff_t top;
  std::ptrdiff_t left;
  std::size_t height;  // of the image; ImageSource describes its pixel (0, 0)
  std::size_t width;
  Border border;
  const std::uint8_t* fill;  // for Border::constant: a pixel, repeated for a row of the slot
};

// Maps row or column `i` to the source index, or to -1 for the fill.
constexpr std::ptrdiff_t within(std::ptrdiff_t i, std::size_t size, Border border) {
  const auto end = static_cast<std::ptrdiff_t>(size);
  if (i >= 0 && i < end) return i;
  if (border == Border::constant) return -1;
  if (border == Border::edge) return i < 0 ? 0 : end - 1;
  return i < 0 ? -i : 2 * (end - 1) - i;
}

// One source image. Strides are in bytes and may be negative (mirrored views), zero (broadcasts)
// or anything else; the item of channel c at row y, column x begins at
// data[y * row_stride + x * column_stride + c * channel_stride].
struct ImageSource {
  const std::uint8_t* data;
  std::ptrdiff_t row_stride;
  std::ptrdiff_t column_stride;
  std::ptrdiff_t channel_stride;
  const ImageCrop* crop = nullptr;  // null: the image covers its slot
};

// The source of the part of its slot from a row and column on. If the source has a crop, `crop`
// gets a copy of it, shifted.
inline ImageSource seen_from(std::ptrdiff_t row, std::ptrdiff_t column, ImageSource source,
                             ImageCrop& crop) {
  if (source.crop == nullptr) {
    source.data += row * source.row_stride + column * source.column_stride;
    return source;
  }
  crop = *source.crop;
  crop.top += row;
  crop.left += column;
  source.crop = &crop;
  return source;
}

struct ImageSize {
  std::size_t height;
  std::size_t width;

  bool operator==(const ImageSize&) const = default;
};

// For images smaller than their slots: the size of each image, and the fill: an item of
// pixel_size(out_type), or one per channel.
struct ImagePadding {
  const ImageSize* sizes;
  const Fill* fills;
  bool per_channel = false;

  const Fill& of(std::size_t channel) const { return fills[per_channel ? channel : 0]; }
};

// A batch of `count` images in slots of height x width. `out` holds the slots, contiguous in
// `out_layout`, and must not overlap any source. Images may be the frames of clips: in CHW, the
// planes of one channel of all frames of a clip are adjacent.
struct ImageBatch {
  const ImageSource* sources;
  std::size_t count;
  std::size_t height;
  std::size_t width;
  std::size_t channels;
  const float* scale;  // `channels` values each
  const float* bias;
  void* out;
  ImageLayout out_layout;
  PixelType out_type;
  bool streaming;                         // bypass the cache: the core won't read the output again
  const ImagePadding* padding = nullptr;  // null: every image fills its slot
  std::size_t frames = 1;                 // per clip; divides `count`
  // Source types: for float outputs, integers up to 16 bits or floats up to 32 bits; for integer
  // outputs, types whose values fit.
  ScalarType in_type = ScalarType::uint8;
  // The row of each slot at which its source begins; nothing above it is written.
  std::size_t first_row = 0;

  // The size of an image within its slot.
  ImageSize size_of(std::size_t image) const {
    return padding == nullptr ? ImageSize{height, width} : padding->sizes[image];
  }
};

// The index in `out` of the plane of an image's channel.
constexpr std::size_t plane_index(const ImageBatch& batch, std::size_t image, std::size_t channel) {
  if (batch.frames == 1) return image * batch.channels + channel;
  const std::size_t clip = image / batch.frames, frame = image % batch.frames;
  return (clip * batch.channels + channel) * batch.frames + frame;
}

// Writes rows [row_begin, row_end) of the batch, padding included; row r is row r % height of image
// r / height. Disjoint ranges may run at the same time. The definition, in plain loops; SIMD code
// is in walk_images of image_runs.h.
void normalize_images_scalar(const ImageBatch& batch, std::size_t row_begin, std::size_t row_end);

// Writes rows [row_begin, row_end) of the mask of a batch of `width` columns, counted in the same
// way: a byte per pixel, 1 for the image and 0 for padding.
void mask_images(const ImageSize* sizes, std::size_t height, std::size_t width, void* out,
                 std::size_t row_begin, std::size_t row_end);

}  // namespace pinfeed::kernels
