// Batches of images to test with: their memory layouts, and a second implementation of the
// definition in kernels/image.h, which every instruction set must match bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "kernels/cast.h"
#include "kernels/image.h"
#include "tests/guarded_memory.h"
#include "tests/image_constants.h"
#include "tests/rounding.h"

namespace pinfeed::tests {

using dispatch::Isa;
using kernels::Fill;
using kernels::ImageBatch;
using kernels::ImageCrop;
using kernels::ImageLayout;
using kernels::ImagePadding;
using kernels::ImageSize;
using kernels::ImageSource;
using kernels::pixel_size;
using kernels::PixelType;
using kernels::scalar_size;
using kernels::ScalarType;
using Random = std::mt19937_64;

inline constexpr PixelType kTypes[] = {PixelType::float32, PixelType::float16, PixelType::bfloat16,
                                       PixelType::uint8};
inline constexpr ImageLayout kLayouts[] = {ImageLayout::chw, ImageLayout::hwc};
inline constexpr std::size_t kChannels[] = {1, 2, 3, 4, 5, 17};

// Types other than color bytes: other numbers, and integer masks, which are copied or widened.
struct Types {
  ScalarType in;
  PixelType out;
};
inline constexpr Types kOtherTypes[] = {
    {ScalarType::uint16, PixelType::float16},   {ScalarType::int16, PixelType::bfloat16},
    {ScalarType::float16, PixelType::float32},  {ScalarType::bfloat16, PixelType::float32},
    {ScalarType::float32, PixelType::float32},  {ScalarType::float32, PixelType::float16},
    {ScalarType::float32, PixelType::bfloat16}, {ScalarType::uint8, PixelType::int16},
    {ScalarType::uint8, PixelType::int64},      {ScalarType::uint16, PixelType::int32},
    {ScalarType::int16, PixelType::int16},      {ScalarType::int32, PixelType::int32},
    {ScalarType::int32, PixelType::int64},      {ScalarType::int64, PixelType::int64}};

// A batch, and the first of the pairs of constants that its channels use.
struct ImageCase {
  std::string what;
  std::vector<ImageSource> sources;
  std::size_t height;
  std::size_t width;
  std::size_t channels;
  ImageLayout layout;
  PixelType type;
  std::size_t first_pair = 0;
  std::vector<ImageSize> sizes = {};  // per image; none if all fill their slots
  std::uint64_t padding = 0;          // the padding's bits, of the type's size
  bool per_channel = false;           // other bits in each channel
  ScalarType in_type = ScalarType::uint8;
  std::size_t frames = 1;  // of each clip

  std::uint64_t padding_of(std::size_t channel) const {
    return per_channel ? std::rotl(padding, static_cast<int>(channel % 8 * 8)) : padding;
  }
  std::size_t rows() const { return sources.size() * height; }
  std::size_t bytes() const { return rows() * width * channels * pixel_size(type); }

  std::string describe(const char* run) const {
    return what + " of type " + std::to_string(static_cast<int>(in_type)) + " -> " +
           (layout == ImageLayout::hwc ? "hwc" : "chw") + ", type " +
           std::to_string(static_cast<int>(type)) + ", " + std::to_string(sources.size()) + " x " +
           std::to_string(height) + " x " + std::to_string(width) + " x " +
           std::to_string(channels) + (sizes.empty() ? ", " : ", padded, ") + run;
  }
};

// The source index of a row or column in the border, found step by step.
inline std::ptrdiff_t walked_inside(std::ptrdiff_t i, std::size_t size, kernels::Border border) {
  const auto last = static_cast<std::ptrdiff_t>(size) - 1;
  const std::ptrdiff_t nearest = i < 0 ? 0 : last, beyond = i < 0 ? -i : i - last;
  if (border == kernels::Border::edge) return nearest;
  return i < 0 ? nearest + beyond : nearest - beyond;
}

// The item at row y, column x of an image's slot.
inline const std::uint8_t* item_at(const ImageSource& source, std::size_t y, std::size_t x,
                                   std::size_t channel, std::size_t item_size = 1) {
  auto row = static_cast<std::ptrdiff_t>(y), column = static_cast<std::ptrdiff_t>(x);
  if (const ImageCrop* const crop = source.crop) {
    row += crop->top;
    column += crop->left;
    const bool row_is_inside = row >= 0 && row < static_cast<std::ptrdiff_t>(crop->height);
    const bool column_is_inside = column >= 0 && column < static_cast<std::ptrdiff_t>(crop->width);
    if (crop->border == kernels::Border::constant && !(row_is_inside && column_is_inside)) {
      return crop->fill + channel * item_size;
    }
    if (!row_is_inside) row = walked_inside(row, crop->height, crop->border);
    if (!column_is_inside) column = walked_inside(column, crop->width, crop->border);
  }
  return source.data + row * source.row_stride + column * source.column_stride +
         static_cast<std::ptrdiff_t>(channel) * source.channel_stride;
}

// Whether values are computed with constants, or only copied.
inline bool is_floating(PixelType type) { return type < PixelType::uint8; }

inline constexpr std::uint32_t kNaN = 0x7fc00000;

// Writes the converted item. Numbers are cast by the casts, which have tests of their own.
inline void store_item(const ImageCase& test, std::size_t channel, const std::uint8_t* item,
                       std::byte* to) {
  const std::size_t pair = test.first_pair + channel;
  if (test.in_type == ScalarType::uint8 && test.type <= PixelType::uint8) {
    return constants().store(test.type, pair, *item, to);
  }
  if (!is_floating(test.type)) {
    const ScalarType as_integer = kernels::copied_as(pixel_size(test.type)).in;
    kernels::kCastScalar.find(test.in_type, as_integer)(item, 1, to);
    return;
  }
  float value;
  kernels::kCastScalar.find(test.in_type, ScalarType::float32)(item, 1, &value);
  value = std::fma(value, constants().scale(pair), constants().bias(pair));
  if (std::isnan(value)) value = std::bit_cast<float>(kNaN);
  const std::uint32_t bits = test.type == PixelType::float32   ? std::bit_cast<std::uint32_t>(value)
                             : test.type == PixelType::float16 ? float16_bits(value)
                                                               : bfloat16_bits(value);
  std::memcpy(to, &bits, pixel_size(test.type));  // of a little-endian number
}

// Makes all NaNs equal, as store_item() does: their payload is unspecified.
inline void level_nans(PixelType type, std::byte* out, std::size_t bytes) {
  const std::size_t size = pixel_size(type);
  const unsigned shift = type == PixelType::float32 ? 0 : 16;
  const std::uint32_t infinity = type == PixelType::float16 ? 0x7c000000 : 0x7f800000;
  for (std::size_t i = 0; i < bytes; i += size) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, out + i, size);
    if ((bits << shift & 0x7fffffff) > infinity) {
      bits = type == PixelType::float16 ? 0x7e00 : kNaN >> shift;
      std::memcpy(out + i, &bits, size);
    }
  }
}

// The definition: writes rows [begin, end).
inline void define(const ImageCase& test, std::size_t begin, std::size_t end, std::byte* out) {
  const std::size_t size = pixel_size(test.type), item = scalar_size(test.in_type);
  const auto channels = static_cast<std::ptrdiff_t>(test.channels);
  for (std::size_t row = begin; row < end; ++row) {
    const std::size_t image = row / test.height, y = row % test.height;
    const std::size_t frame = image % test.frames;
    const std::size_t first_plane = (image - frame) * test.channels + frame;
    const ImageSource& source = test.sources[image];
    const ImageSize own =
        test.sizes.empty() ? ImageSize{test.height, test.width} : test.sizes[image];
    for (std::size_t x = 0; x < test.width; ++x) {
      const bool covered = y < own.height && x < own.width;
      for (std::ptrdiff_t c = 0; c < channels; ++c) {
        const auto channel = static_cast<std::size_t>(c);
        const std::size_t index =
            test.layout == ImageLayout::hwc
                ? (row * test.width + x) * test.channels + channel
                : ((first_plane + channel * test.frames) * test.height + y) * test.width + x;
        if (covered) {
          store_item(test, channel, item_at(source, y, x, channel, item), out + index * size);
        } else {
          const std::uint64_t padding = test.padding_of(channel);
          std::memcpy(out + index * size, &padding, size);
        }
      }
    }
  }
}

// The whole batch at once with and without streaming stores, then part of its rows before the
// others, each into an output with another alignment.
inline void check_case(const Isa& isa, const ImageCase& test, Random& random) {
  std::vector<float> scale(test.channels), bias(test.channels);
  for (std::size_t c = 0; c < test.channels; ++c) {
    scale[c] = constants().scale(test.first_pair + c);
    bias[c] = constants().bias(test.first_pair + c);
  }
  ImageBatch batch{test.sources.data(), test.sources.size(), test.height, test.width,
                   test.channels,       scale.data(),        bias.data(), nullptr,
                   test.layout,         test.type,           false};
  if (!is_floating(test.type)) batch.scale = batch.bias = nullptr;
  batch.frames = test.frames;
  batch.in_type = test.in_type;
  const std::size_t size = pixel_size(test.type), rows = test.rows();
  std::vector<Fill> fills;
  for (std::size_t c = 0; c < test.channels; ++c) {
    const std::uint64_t bits = test.padding_of(c);
    fills.emplace_back(&bits, size);
  }
  const ImagePadding padding{test.sizes.data(), fills.data(), test.per_channel};
  if (!test.sizes.empty()) batch.padding = &padding;
  const auto write = [&](MarkedOutput& out, std::size_t begin, std::size_t end) {
    batch.out = out.data();
    isa.normalize_images(batch, begin, end);
    if (is_floating(test.type) && test.in_type != ScalarType::uint8) {
      level_nans(test.type, out.data(), test.bytes());
    }
  };

  std::vector<std::byte> all(test.bytes(), MarkedOutput::kMark);
  define(test, 0, rows, all.data());
  for (const bool streaming : {false, true}) {
    const std::size_t misalignment = random() % 3 == 0 ? 0 : random() % (64 / size) * size;
    MarkedOutput out(test.bytes(), misalignment);
    batch.streaming = streaming;
    write(out, 0, rows);
    if (!out.equals(all)) {
      throw std::runtime_error(test.describe(streaming ? "streaming" : "not streaming"));
    }
  }

  const std::size_t begin = random() % (rows + 1), end = begin + random() % (rows + 1 - begin);
  std::vector<std::byte> part(test.bytes(), MarkedOutput::kMark);
  define(test, begin, end, part.data());
  MarkedOutput out(test.bytes(), random() % (64 / size) * size);
  batch.streaming = random() % 2 == 0;
  write(out, begin, end);
  if (!out.equals(part)) throw std::runtime_error(test.describe("a range of rows"));
  write(out, end, rows);
  write(out, 0, begin);
  if (!out.equals(all)) throw std::runtime_error(test.describe("the rows around a range"));
}

// A memory layout of an image.
struct Strides {
  const char* name;
  std::ptrdiff_t row;
  std::ptrdiff_t column;
  std::ptrdiff_t channel;
};

// In items, as place_source() takes them.
inline std::vector<Strides> all_strides(std::size_t height, std::size_t width,
                                        std::size_t channels) {
  const auto h = static_cast<std::ptrdiff_t>(height), w = static_cast<std::ptrdiff_t>(width);
  const auto c = static_cast<std::ptrdiff_t>(channels), plane = h * w;
  return {{"pixels", w * c, c, 1},
          {"pixels, cropped", (w + 5) * c, c, 1},
          {"pixels, mirrored", w * c, -c, 1},
          {"pixels, mirrored and cropped", (w + 5) * c, -c, 1},
          {"pixels, flipped", -w * c, c, 1},
          {"pixels, flipped and mirrored", -w * c, -c, 1},
          {"pixels, BGR", w * c, c, -1},
          {"pixels, BGR, cropped", (w + 1) * c, c, -1},
          {"pixels, BGR, mirrored", w * c, -c, -1},
          {"pixels, BGR, flipped and mirrored", -w * c, -c, -1},
          {"pixels, every other column", 2 * w * c, 2 * c, 1},
          {"pixels, every other row", 2 * w * c, c, 1},
          {"pixels, first channels", w * (c + 1), c + 1, 1},
          {"pixels, first channels, mirrored", w * (c + 1), -(c + 1), 1},
          {"pixels, first channels, cropped", (w + 5) * (c + 1), c + 1, 1},
          {"pixels, first channels, flipped", -w * (c + 1), c + 1, 1},
          {"pixels, first channels, BGR", w * (c + 1), c + 1, -1},
          {"pixels, first channels, BGR, mirrored", (w + 2) * (c + 1), -(c + 1), -1},
          {"pixels, transposed", c, h * c, 1},
          {"planes", w, 1, plane},
          {"planes, cropped", w + 7, 1, h * (w + 7)},
          {"planes, mirrored", w, -1, plane},
          {"planes, flipped", -w, 1, plane},
          {"planes, flipped and mirrored", -w, -1, plane},
          {"planes, BGR", w, 1, -plane},
          {"planes, every other column", 2 * w, 2, 2 * plane},
          {"planes, transposed", 1, h, plane},
          {"lines of planes", w * c, 1, w},
          {"one plane for all channels", w, 1, 0},
          {"one row for all", 0, c, 1},
          {"one column for all", c, 0, 1},
          {"one value for all", 0, 0, 0}};
}

inline ImageSource place_source(ImageSize size, std::size_t channels, const Strides& strides,
                                Random& random, ScalarType type = ScalarType::uint8) {
  const auto item = static_cast<std::int64_t>(scalar_size(type));
  const std::int64_t shape[] = {static_cast<std::int64_t>(size.height),
                                static_cast<std::int64_t>(size.width),
                                static_cast<std::int64_t>(channels)};
  const std::int64_t bytes[] = {strides.row * item, strides.column * item, strides.channel * item};
  return {source_memory().place(shape, bytes, scalar_size(type), random), bytes[0], bytes[1],
          bytes[2]};
}

}  // namespace pinfeed::tests
