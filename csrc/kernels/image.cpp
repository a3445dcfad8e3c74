// Walks the rows of a batch of images, and writes the padding around small images.
#include "kernels/image.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/copy.h"
#include "kernels/image_band.h"
#include "kernels/image_runs.h"
#include "kernels/lookahead.h"

namespace pinfeed::kernels {
namespace {

constexpr std::size_t kStageBytes = std::size_t{32} << 10;

// The layout of an image in the output: its planes, and the items of a pixel in each.
struct Planes {
  const ImageBatch& batch;
  bool hwc;

  std::size_t count() const { return hwc ? 1 : batch.channels; }
  std::size_t column() const { return hwc ? batch.channels : 1; }
  std::size_t index(std::size_t image, std::size_t plane) const {
    return hwc ? image : plane_index(batch, image, plane);
  }
};

// Fills pixels whose channels are adjacent, `items` in all: writes one pixel, then copies it.
void pad_pixels(const ImageBatch& batch, std::byte* out, std::size_t items) {
  const std::size_t item_size = pixel_size(batch.out_type);
  const std::size_t bytes = items * item_size;
  std::size_t done = std::min(batch.channels * item_size, bytes);
  for (std::size_t c = 0; c * item_size < done; ++c) {
    batch.padding->of(c).write(out + c * item_size, 1, false);
  }
  for (; done < bytes; done += std::min(done, bytes - done)) {
    std::memcpy(out + done, out, std::min(done, bytes - done));
  }
}

// Fills columns [x, width) of the rows [row, row + rows) of an image's slot.
void pad_rows(const ImageBatch& batch, bool hwc, std::size_t image, std::size_t row,
              std::size_t rows, std::size_t x) {
  const Planes planes{batch, hwc};
  const std::size_t column = planes.column(), items = (rows * batch.width - x) * column;
  for (std::size_t plane = 0; plane < planes.count(); ++plane) {
    const std::size_t first_row = planes.index(image, plane) * batch.height + row;
    std::byte* const out =
        advance(batch.out, (first_row * batch.width + x) * column, batch.out_type);
    if (column > 1 && batch.padding->per_channel) {
      pad_pixels(batch, out, items);
    } else {
      batch.padding->of(plane).write(out, items, batch.streaming);
    }
  }
}

// Prefetches the cache line that two runs of output share at `border`.
void prefetch_shared(const std::byte* border) {
  if (reinterpret_cast<std::uintptr_t>(border) % kLine != 0) prefetch_line_to_write(border);
}

// The bytes of an input pixel.
std::size_t pixel_bytes(const ImageBatch& batch) {
  return batch.channels * scalar_size(batch.in_type);
}

// The address of an image's pixels in their usual layout, flipped or not.
std::span<const std::byte> memory_of(const ImageBatch& batch, std::size_t image) {
  const ImageSource& source = batch.sources[image];
  ImageSize size = batch.size_of(image);
  if (source.crop != nullptr) size = {source.crop->height, source.crop->width};
  const auto [height, width] = size;
  if (height == 0 || width == 0) return {};
  const std::uint8_t* lowest = source.data;
  if (source.row_stride < 0) lowest += static_cast<std::ptrdiff_t>(height - 1) * source.row_stride;
  if (source.column_stride < 0)
    lowest += static_cast<std::ptrdiff_t>(width - 1) * source.column_stride;
  return std::as_bytes(std::span(lowest, height * width * pixel_bytes(batch)));
}

// The number of images from `image` on whose bytes are adjacent in memory.
std::size_t adjacent_images(const ImageBatch& batch, std::size_t image, std::size_t limit) {
  const auto bytes = static_cast<std::ptrdiff_t>(batch.height * batch.width * pixel_bytes(batch));
  const ImageSource& first = batch.sources[image];
  std::size_t count = 1;
  while (count < limit) {
    const ImageSource& next = batch.sources[image + count];
    if (next.crop != nullptr || next.data != batch.sources[image + count - 1].data + bytes ||
        next.row_stride != first.row_stride || next.column_stride != first.column_stride ||
        next.channel_stride != first.channel_stride) {
      break;
    }
    ++count;
  }
  return count;
}

// Rows [begin, end) of an image `width` pixels wide, and the padding beside them.
template <class Value>
void write_rows(const ImageRuns& runs, const ImageBatch& batch, bool hwc,
                const PackedConstants& constants, std::size_t image, std::size_t width,
                std::size_t begin, std::size_t end) {
  const bool narrow = width < batch.width;
  const std::size_t step = narrow ? 1 : end - begin;
  for (std::size_t row = begin; row < end; row += step) {
    Band<Value>(runs, batch, image, row, step, width).write(hwc, constants);
    if (narrow) pad_rows(batch, hwc, image, row, 1, width);
  }
}

// Note [Narrow images]
// The rows of an image narrower than its slot begin and end anywhere in a cache line. A line that
// is not streamed as a whole is read from memory first, and all later stores wait for that. So a
// few rows at a time are assembled with their padding in the L1 cache and streamed from there;
// meanwhile the lines that they share with their neighbors arrive.

// The number of rows; 0 if not even one fits.
std::size_t staged_rows(const ImageBatch& batch, bool hwc) {
  constexpr std::size_t kRunBytes = 3072;  // per plane, so that few lines are shared
  const std::size_t planes = hwc ? 1 : batch.channels;
  const std::size_t row_bytes = batch.width * batch.channels * pixel_size(batch.out_type);
  return std::min(std::max(kRunBytes * planes / row_bytes, std::size_t{1}),
                  kStageBytes / row_bytes);
}

// write_rows for `rows` rows at a time.
template <class Value>
void stream_rows(const ImageRuns& runs, const ImageBatch& batch, bool hwc,
                 const PackedConstants& constants, std::size_t image, std::size_t width,
                 std::size_t begin, std::size_t end, std::size_t rows) {
  const Planes planes{batch, hwc};
  const std::size_t items = batch.width * planes.column();  // of a row in one plane
  alignas(kLine) std::byte stage[kStageBytes];
  for (std::size_t row = begin; row < end; row += rows) {
    rows = std::min(rows, end - row);
    const std::size_t bytes = rows * items * pixel_size(batch.out_type);
    const auto out = [&](std::size_t plane) {
      return advance(batch.out, (planes.index(image, plane) * batch.height + row) * items,
                     batch.out_type);
    };
    for (std::size_t plane = 0; plane < planes.count(); ++plane) {
      prefetch_shared(out(plane));
      prefetch_shared(out(plane) + bytes);
    }
    ImageCrop crop;
    const ImageSource source = seen_from(static_cast<std::ptrdiff_t>(row - batch.first_row), 0,
                                         batch.sources[image], crop);
    ImageBatch staged = batch;
    staged.sources = &source;
    staged.first_row = 0;
    staged.frames = 1;
    staged.height = rows;
    staged.out = stage;
    staged.streaming = false;
    write_rows<Value>(runs, staged, hwc, constants, 0, width, 0, rows);
    for (std::size_t plane = 0; plane < planes.count(); ++plane) {
      copy_bytes(out(plane), stage + plane * bytes, bytes, true);
    }
  }
}

// Rows [begin, end) of the slot of an image that may be smaller.
template <class Value>
void write_padded(const ImageRuns& runs, const ImageBatch& batch, bool hwc,
                  const PackedConstants& constants, std::size_t image, std::size_t begin,
                  std::size_t end) {
  const auto [height, width] = batch.padding->sizes[image];
  // An image without columns is all padding.
  const std::size_t image_end = width == 0 ? begin : std::clamp(height, begin, end);
  const std::size_t rows = batch.streaming && width < batch.width ? staged_rows(batch, hwc) : 0;
  if (rows > 0) {
    stream_rows<Value>(runs, batch, hwc, constants, image, width, begin, image_end, rows);
  } else {
    write_rows<Value>(runs, batch, hwc, constants, image, width, begin, image_end);
  }
  if (image_end < end) pad_rows(batch, hwc, image, image_end, end - image_end, 0);
}

template <class Value>
void walk(const ImageRuns& runs, const ImageBatch& batch, std::size_t row_begin,
          std::size_t row_end) {
  const std::size_t height = batch.height, channels = batch.channels;
  if (batch.width == 0 || channels == 0 || row_begin >= row_end) return;
  // One channel, or one pixel: both layouts have the same bytes.
  const bool hwc = batch.out_layout == ImageLayout::hwc || channels == 1 ||
                   (height * batch.width == 1 && batch.frames == 1);
  constexpr std::size_t kTile = kTileValues<Value>;
  if (hwc && channels > kTile) {  // wider than a tile: SIMD code would not be faster
    ImageBatch same = batch;
    same.out_layout = ImageLayout::hwc;
    normalize_images_scalar(batch.out_layout == ImageLayout::hwc ? batch : same, row_begin,
                            row_end);
    return;
  }

  float scale[kTile + kBlock], bias[kTile + kBlock];
  const PackedConstants constants{scale, bias, channels};
  if (hwc && batch.out_type < PixelType::uint8) {
    for (std::size_t i = 0; i < channels + kBlock; ++i) {
      scale[i] = batch.scale[i % channels];
      bias[i] = batch.bias[i % channels];
    }
  }

  const std::size_t first_image = row_begin / height, last_image = (row_end - 1) / height;
  Lookahead ahead(first_image, last_image + 1, height * batch.width * pixel_bytes(batch));
  for (std::size_t row = row_begin; row < row_end;) {
    const std::size_t image = row / height, y = row % height;
    std::size_t rows = std::min(height - y, row_end - row);
    ahead.before(image, [&](std::size_t i) { return memory_of(batch, i); });
    if (batch.padding != nullptr) {
      write_padded<Value>(runs, batch, hwc, constants, image, y, y + rows);
    } else {
      Band<Value> band(runs, batch, image, y, rows, batch.width);
      if (hwc && rows == height && band.linear_hwc()) {
        // Calls cost more than the bytes of small images, so adjacent images share a call.
        const std::size_t images = adjacent_images(batch, image, (row_end - row) / height);
        band.extend(images);
        rows *= images;
      }
      band.write(hwc, constants);
    }
    row += rows;
  }
  if (batch.streaming) stores_done();
}

}  // namespace

void walk_images(const ImageRuns& runs, const ImageBatch& batch, std::size_t row_begin,
                 std::size_t row_end) {
  switch (batch.out_type) {
    case PixelType::float32:
    case PixelType::float16:
    case PixelType::bfloat16:
      if (batch.in_type != ScalarType::uint8) return walk<float>(runs, batch, row_begin, row_end);
      [[fallthrough]];
    case PixelType::uint8:
      return walk<std::uint8_t>(runs, batch, row_begin, row_end);
    case PixelType::int16:
      return walk<std::int16_t>(runs, batch, row_begin, row_end);
    case PixelType::int32:
      return walk<std::int32_t>(runs, batch, row_begin, row_end);
    case PixelType::int64:
      return walk<std::int64_t>(runs, batch, row_begin, row_end);
  }
}

void mask_images(const ImageSize* sizes, std::size_t height, std::size_t width, void* out,
                 std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const ImageSize size = sizes[row / height];
    const std::size_t covered = row % height < size.height ? size.width : 0;
    auto* const to = static_cast<std::byte*>(out) + row * width;
    std::memset(to, 1, covered);
    std::memset(to + covered, 0, width - covered);
  }
}

}  // namespace pinfeed::kernels
