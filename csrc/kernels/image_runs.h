// The primitives of an instruction set for images: they process runs of adjacent values, bytes or
// float32. `walk_images` cuts a batch into such runs, so strides, sizes and layouts are handled in
// one place and SIMD code stays small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kernels/cast.h"
#include "kernels/image.h"
#include "kernels/permute_runs.h"

namespace pinfeed::kernels {

// The number of values that a primitive converts at a time. Buffers need no padding: a primitive
// copies the last, partial block first.
inline constexpr std::size_t kBlock = 16;

// The values from one block of pixels to the next.
template <int Step, bool Backwards>
inline constexpr std::ptrdiff_t kNext = (Backwards ? -Step : Step) * std::ptrdiff_t{kBlock};

// Converts `count` pixels of Step adjacent values to planes: channel c, with scale[c] and bias[c],
// into the plane at c * plane_stride bytes after `out`. `backwards`: the last pixel first.
template <class Value>
using PlanesRun = void (*)(const Value* pixels, std::size_t count, const float* scale,
                           const float* bias, void* out, std::ptrdiff_t plane_stride,
                           bool streaming, bool backwards);

// Converts `count` consecutive values whose scale and bias repeat every `period` values. The tables
// have `period` + kBlock entries, so that a block can be loaded at any phase.
struct PackedConstants {
  const float* scale;
  const float* bias;
  std::size_t period;
};
template <class Value>
using PackedRun = void (*)(const Value* values, std::size_t count, const PackedConstants& constants,
                           void* out, bool streaming);

// Pixels of some rows, with these strides.
struct PixelRows {
  const std::uint8_t* data;
  std::ptrdiff_t row_stride;
  std::ptrdiff_t column_stride;
  std::ptrdiff_t channel_stride;
  std::size_t rows;
  std::size_t columns;

  // One channel of them.
  PixelRows channel(std::size_t c) const {
    PixelRows one = *this;
    one.data += static_cast<std::ptrdiff_t>(c) * channel_stride;
    return one;
  }
  // The same with the channels in reverse order.
  PixelRows reversed(std::size_t channels) const {
    PixelRows other = *this;
    other.data += static_cast<std::ptrdiff_t>(channels - 1) * channel_stride;
    other.channel_stride = -channel_stride;
    return other;
  }
  // The same with the columns in reverse order.
  PixelRows mirrored() const {
    PixelRows other = *this;
    other.data += static_cast<std::ptrdiff_t>(columns - 1) * column_stride;
    other.column_stride = -column_stride;
    return other;
  }
};

// Copies pixels without gaps: mirrored ones, BGR, the first three channels of four. Items have 1,
// 2, 4 or 8 bytes. Reads forwards and writes mirrored rows backwards, because the source comes from
// memory, where the prefetcher expects that, while the output stays in the cache. Reads nothing
// outside the pixels, not even the fourth channel of the last one.
using PickPixels = void (*)(const PixelRows& from, std::size_t channels, std::size_t item,
                            std::uint8_t* to, std::ptrdiff_t to_stride);

inline constexpr std::size_t kPicked = 16;  // bytes at a time

// The number of bytes from the first to the last of a pixel.
inline std::size_t pixel_span(const PixelRows& pixels, std::size_t channels, std::size_t item) {
  return (channels - 1) * static_cast<std::size_t>(std::abs(pixels.channel_stride)) + item;
}

inline bool can_pick(const PixelRows& from, std::size_t channels, std::size_t item) {
  const auto pixel = static_cast<std::size_t>(std::abs(from.column_stride));
  return pixel > 0 && pixel <= kPicked && channels * item <= kPicked &&
         pixel_span(from, channels, item) <= kPicked;
}

// Copies `rows` rows (at least one) of `bytes` bytes.
using CopyRows = void (*)(const std::uint8_t* from, std::ptrdiff_t from_stride, std::size_t bytes,
                          std::size_t rows, std::uint8_t* to, std::ptrdiff_t to_stride);

// Pixels of 4 values, of which the first three are converted; the last pixel may lack a fourth,
// unless they are read backwards.
inline constexpr int kThreeOfFour = 3;

// Indexed by PixelType, and for pixels of 1, 3 and 4 values by step_index().
template <class Value>
struct ValueRuns {
  PlanesRun<Value> planes[kPixelTypes][4];  // [3]: kThreeOfFour
  PackedRun<Value> packed[kPixelTypes];
};

struct ImageRuns {
  ValueRuns<std::uint8_t> bytes;
  ValueRuns<float> floats;  // none to uint8
  PickPixels pick_pixels;
  CopyRows copy_rows;
  const CastTable* casts;
  const PermuteRuns* permute;
};

// Position of a pixel size in those tables, or -1 if it has no fast path.
constexpr int step_index(std::size_t step) {
  return step == 1 ? 0 : step == 3 ? 1 : step == 4 ? 2 : -1;
}

extern const ImageRuns kImageRunsAvx2;
extern const ImageRuns kImageRunsAvx512;
extern const ImageRuns kImageRunsNeon;

// normalize_images_scalar with the primitives of an instruction set.
void walk_images(const ImageRuns& runs, const ImageBatch& batch, std::size_t row_begin,
                 std::size_t row_end);

}  // namespace pinfeed::kernels
