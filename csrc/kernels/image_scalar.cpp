// The reference implementation: the definition in image.h, kept plain on purpose.
#include <cmath>
#include <cstring>

#include "kernels/image.h"
#include "kernels/round.h"

namespace pinfeed::kernels {
namespace {

// `out` need not be aligned to its items.
void store(const ImageBatch& batch, std::size_t index, const std::uint8_t* from,
           std::size_t channel) {
  const std::size_t size = pixel_size(batch.out_type);
  auto* const to = static_cast<std::byte*>(batch.out) + index * size;
  if (batch.out_type >= PixelType::uint8) {
    kCastScalar.find(batch.in_type, copied_as(size).in)(from, 1, to);
    return;
  }
  float value;
  kCastScalar.find(batch.in_type, ScalarType::float32)(from, 1, &value);
  value = std::fma(value, batch.scale[channel], batch.bias[channel]);
  if (batch.out_type == PixelType::float32) {
    std::memcpy(to, &value, size);
  } else {
    const bool half = batch.out_type == PixelType::float16;
    const std::uint16_t bits = half ? to_float16_bits(value) : to_bfloat16_bits(value);
    std::memcpy(to, &bits, size);
  }
}

// The address of the item at that position.
const std::uint8_t* item_at(const ImageBatch& batch, std::size_t image, std::size_t y,
                            std::size_t x, std::size_t c) {
  const ImageSource& source = batch.sources[image];
  auto row = static_cast<std::ptrdiff_t>(y - batch.first_row),
       column = static_cast<std::ptrdiff_t>(x);
  if (const ImageCrop* const crop = source.crop) {
    row = within(crop->top + row, crop->height, crop->border);
    column = within(crop->left + column, crop->width, crop->border);
    if (row < 0 || column < 0) return crop->fill + c * scalar_size(batch.in_type);
  }
  return source.data + row * source.row_stride + column * source.column_stride +
         static_cast<std::ptrdiff_t>(c) * source.channel_stride;
}

void pad(const ImageBatch& batch, std::size_t index, std::size_t channel) {
  const std::size_t item_size = pixel_size(batch.out_type);
  batch.padding->of(channel).write(static_cast<std::byte*>(batch.out) + index * item_size, 1,
                                   false);
}

}  // namespace

void normalize_images_scalar(const ImageBatch& batch, std::size_t row_begin, std::size_t row_end) {
  const std::size_t height = batch.height, width = batch.width, channels = batch.channels;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const std::size_t image = row / height, y = row % height;
    const ImageSize size = batch.size_of(image);
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t index = batch.out_layout == ImageLayout::hwc
                                      ? ((image * height + y) * width + x) * channels + c
                                      : (plane_index(batch, image, c) * height + y) * width + x;
        if (y >= size.height || x >= size.width) {
          pad(batch, index, c);
          continue;
        }
        store(batch, index, item_at(batch, image, y, x, c), c);
      }
    }
  }
}

}  // namespace pinfeed::kernels
