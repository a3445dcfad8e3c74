// Parts of an image, cut into runs of adjacent bytes for an instruction set's primitives.
//
// Note [Tiles]
// Pixels that are not adjacent in memory (crops, mirrored views, planes to be interleaved) are
// first copied, a tile at a time, into the order that a primitive reads. A tile fits in the L1
// cache, so this pass costs instructions but no memory traffic. A source that is already in order
// is read in place. A crop that extends beyond its image is assembled in the tile too: pixels
// beyond an edge have other strides. A mirrored source keeps its memory order in the tile, last row
// first, and the whole tile is then split into planes in reverse order. Images of other types
// become float32 in the tile, or integers of the output's size, so a type needs no primitives of
// its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/copy.h"
#include "kernels/image.h"
#include "kernels/image_runs.h"
#include "kernels/lookahead.h"
#include "kernels/strided_copy.h"

namespace pinfeed::kernels {
namespace {

template <class Value>
constexpr std::size_t kTileValues = (std::is_floating_point_v<Value> ? 8192 : 4096) / sizeof(Value);

std::byte* advance(void* out, std::size_t index, PixelType type) {
  return static_cast<std::byte*>(out) + index * pixel_size(type);
}

// A row of `count` pixels with adjacent channels and possibly one more value, which the last one
// lacks. Backwards: the band's last pixel comes first.
template <class Value>
struct Tile {
  Value* data;
  std::size_t count;
  std::size_t channels;
  bool backwards;
  std::size_t gap = 0;

  std::size_t pixel() const { return channels + gap; }
};

// Rows [row, row + rows) of an image as wide as its slot, or one row of a narrower image. `Value`
// is the type in the tile: bytes; float32; or larger integers, which are only copied.
template <class Value>
class Band {
 public:
  Band(const ImageRuns& runs, const ImageBatch& batch, std::size_t image, std::size_t row,
       std::size_t rows, std::size_t width)
      : runs_(runs),
        batch_(batch),
        source_(batch.sources[image]),
        image_(image),
        row_(row),
        source_row_(row - batch.first_row),
        pixels_(rows * width),
        channels_(batch.channels),
        step_(kCopied ? -1 : step_index(batch.channels)),
        item_(kBytes ? 1 : static_cast<std::ptrdiff_t>(scalar_size(batch.in_type))),
        in_place_(kBytes || batch.in_type == kTileType) {
    one_run_ = source_.crop == nullptr &&
               (rows <= 1 ||
                source_.row_stride == static_cast<std::ptrdiff_t>(width) * source_.column_stride);
  }

  // `constants` are the expanded tables of the packed primitive, for HWC.
  void write(bool hwc, const PackedConstants& constants) const {
    if (!hwc) {
      write_chw();
    } else if (linear_hwc() && in_place_) {
      write_packed(values_at(at(0)), 0, pixels_, constants);
    } else {
      write_hwc(constants);
    }
  }

  // Whether the source's bytes are adjacent in the order of an HWC output.
  bool linear_hwc() const {
    return one_run_ && source_.column_stride == pixel_stride() &&
           (source_.channel_stride == item_ || channels_ == 1);
  }

  // Extends the band to `images` images whose bytes are adjacent.
  void extend(std::size_t images) { pixels_ *= images; }

 private:
  static constexpr bool kBytes = sizeof(Value) == 1;
  static constexpr bool kCopied = std::is_integral_v<Value> && !kBytes;
  static constexpr ScalarType kTileType =
      kCopied ? copied_as(sizeof(Value)).in : ScalarType::float32;
  static constexpr std::size_t kTile = kTileValues<Value>;
  static constexpr float kNone[4] = {};  // no scale and bias: a plain permutation

  void write_chw() const {
    const bool packed = packed_either_way();
    const auto write = [&](std::size_t begin, std::size_t count) {
      if (packed) {
        write_planes_from_pixels(begin, count);
      } else {
        write_planes_one_by_one(begin, count);
      }
    };
    const std::ptrdiff_t step = packed ? pixel_stride() + gap() * item_ : item_;
    if (one_run_ && in_place_ && source_.column_stride == step) return write(0, pixels_);
    const std::size_t tile = std::clamp(kTile / (channels_ + gap()), std::size_t{64}, kTile) & ~63u;
    for_each_tile(tile, 1, write);
  }

  void write_hwc(const PackedConstants& constants) const {
    const std::size_t tile = std::max(kTile / channels_ & ~std::size_t{63}, std::size_t{1});
    alignas(64) Value buffer[kTile];
    // Bytes that are only copied need no tile, unless stores bypass the cache: on a Zen 5 an image
    // of 500 by 375 took 41 µs through a tile, and 27 without it.
    const bool is_direct =
        kBytes && !scaled() && (!batch_.streaming || memcpy_streams(pixels_ * channels_));
    const std::size_t step = is_direct && one_run_ ? pixels_ : tile;
    for_each_tile(step, channels_, [&](std::size_t begin, std::size_t count) {
      auto* const to = is_direct ? reinterpret_cast<Value*>(packed_at(begin)) : buffer;
      fill({to, count, channels_, false}, begin, [](const PixelRows& from) { return from; });
      if (!is_direct) write_packed(buffer, begin, count, constants);
    });
  }

  // Calls write(begin, count) for all pixels, at most `tile` at a time. The first tile is shorter,
  // so that all others begin at a cache line of the output; `items` items of a pixel are adjacent
  // there.
  template <class Write>
  void for_each_tile(std::size_t tile, std::size_t items, const Write& write) const {
    std::size_t count = tile;
    if (batch_.streaming && pixels_ > tile && tile >= kLine) {
      const std::size_t planes = channels_ / items, pixel = items * pixel_size(batch_.out_type);
      const std::size_t index = (image_ * planes * batch_.height + row_) * batch_.width;
      const auto address = reinterpret_cast<std::uintptr_t>(batch_.out) + index * pixel;
      while (count > tile - kLine && (address + count * pixel) % kLine != 0) --count;
      if (count == tile - kLine) count = tile;  // no pixel begins at a line
    }
    for (std::size_t begin = 0; begin < pixels_; begin += count, count = tile) {
      count = std::min(count, pixels_ - begin);
      if (!one_run_) prefetch(begin + count, std::min(count, pixels_ - begin - count));
      write(begin, count);
    }
  }

  // Prefetches pixels while earlier ones are written. Rows of a crop are far apart, so the hardware
  // doesn't predict the next one.
  void prefetch(std::size_t begin, std::size_t count) const {
    if (source_.crop != nullptr || std::abs(source_.column_stride) > std::ptrdiff_t{kLine}) return;
    for (const std::size_t end = begin + count; begin < end;) {
      const std::size_t y = begin / batch_.width, x = begin % batch_.width;
      const std::size_t columns = std::min(batch_.width - x, end - begin);
      const auto bytes = static_cast<std::ptrdiff_t>(columns) * source_.column_stride;
      prefetch_lines(pixel(source_row_ + y, x) + std::min<std::ptrdiff_t>(bytes, 0),
                     static_cast<std::size_t>(std::abs(bytes)));
      begin += columns;
    }
  }

  // The address of the band's pixel number `pixel` in an HWC output.
  std::byte* packed_at(std::size_t pixel) const {
    const std::size_t index = ((image_ * batch_.height + row_) * batch_.width + pixel) * channels_;
    return advance(batch_.out, index, batch_.out_type);
  }

  // Pixels [begin, begin + count) of the band.
  void write_packed(const Value* values, std::size_t begin, std::size_t count,
                    const PackedConstants& constants) const {
    std::byte* const out = packed_at(begin);
    if constexpr (kCopied) {
      copy_bytes(out, values, count * channels_ * sizeof(Value), batch_.streaming);
    } else {
      runs().packed[static_cast<std::size_t>(batch_.out_type)](values, count * channels_, constants,
                                                               out, batch_.streaming);
    }
  }

  // Pixels of 3 or 4 adjacent values, in either channel order (RGB or BGR), with or without a gap
  // behind them.
  bool packed_either_way() const {
    const std::ptrdiff_t gap = std::abs(source_.column_stride) - pixel_stride();
    return step_ > 0 && gap >= 0 && gap <= item_ && std::abs(source_.channel_stride) == item_;
  }

  // The values between three channels and the next pixel's, if they are copied too. A crop's fill
  // has none.
  std::ptrdiff_t gap() const {
    return channels_ == 3 && source_.crop == nullptr && packed_either_way() &&
                   std::abs(source_.column_stride) > pixel_stride()
               ? 1
               : 0;
  }

  void write_planes_from_pixels(std::size_t begin, std::size_t count) const {
    const bool bgr = source_.channel_stride < 0;
    const std::ptrdiff_t gap = this->gap();
    const int step = gap > 0 ? kThreeOfFour : step_;
    alignas(64) Value buffer[kTile];
    const Value* pixels = buffer;
    if (one_run_ && in_place_ && source_.column_stride == pixel_stride() + gap * item_) {
      pixels = values_at(at(begin)) - (bgr ? channels_ - 1 : 0);
    } else {
      fill({buffer, count, channels_, backwards(), static_cast<std::size_t>(gap)}, begin,
           [&](const PixelRows& from) { return bgr ? from.reversed(channels_) : from; });
    }
    if (!bgr) {
      write_planes(step, pixels, count, scale(0), bias(0), 0, begin, 1);
    } else {
      float scales[4], biases[4];
      for (std::size_t c = 0; c < channels_; ++c) {
        scales[c] = *scale(channels_ - 1 - c);
        biases[c] = *bias(channels_ - 1 - c);
      }
      write_planes(step, pixels, count, scales, biases, channels_ - 1, begin, -1);
    }
  }

  void write_planes_one_by_one(std::size_t begin, std::size_t count) const {
    alignas(64) Value buffer[kTile];
    for (std::size_t c = 0; c < channels_; ++c) {
      const Value* values = buffer;
      if (one_run_ && in_place_ && source_.column_stride == item_) {
        values = values_at(at(begin) + static_cast<std::ptrdiff_t>(c) * source_.channel_stride);
      } else {
        fill({buffer, count, 1, backwards()}, begin,
             [&](const PixelRows& from) { return from.channel(c); });
      }
      write_planes(0, values, count, scale(c), bias(c), c, begin, 1);
    }
  }

  // Pixels [begin, begin + count) of the band; their channel 0 goes to plane `first_plane`, the
  // others to the planes after it (direction 1) or before it (-1).
  void write_planes(int step, const Value* pixels, std::size_t count, const float* scale,
                    const float* bias, std::size_t first_plane, std::size_t begin,
                    std::ptrdiff_t direction) const {
    const std::size_t plane = batch_.height * batch_.width;
    const std::size_t index =
        plane_index(batch_, image_, first_plane) * plane + row_ * batch_.width + begin;
    std::byte* const out = advance(batch_.out, index, batch_.out_type);
    if constexpr (kCopied) {
      copy_bytes(out, pixels, count * sizeof(Value), batch_.streaming);
    } else {
      const std::size_t stride = batch_.frames * plane * pixel_size(batch_.out_type);
      runs().planes[static_cast<std::size_t>(batch_.out_type)][step](
          pixels, count, scale, bias, out, direction * static_cast<std::ptrdiff_t>(stride),
          batch_.streaming, backwards());
    }
  }

  const auto& runs() const {
    if constexpr (kBytes) {
      return runs_.bytes;
    } else {
      return runs_.floats;
    }
  }

  const float* scale(std::size_t channel) const {
    return scaled() ? batch_.scale + channel : kNone;
  }
  const float* bias(std::size_t channel) const { return scaled() ? batch_.bias + channel : kNone; }
  bool scaled() const { return batch_.out_type < PixelType::uint8; }

  // Bytes of a pixel whose values are adjacent.
  std::ptrdiff_t pixel_stride() const { return static_cast<std::ptrdiff_t>(channels_) * item_; }

  // Whether the source's items have the type that primitives read.
  static const Value* values_at(const std::uint8_t* items) {
    return reinterpret_cast<const Value*>(items);
  }

  // Address of channel 0 of the band's pixel number `pixel`, for a band that is one run.
  const std::uint8_t* at(std::size_t pixel) const {
    return source_.data + static_cast<std::ptrdiff_t>(source_row_) * source_.row_stride +
           static_cast<std::ptrdiff_t>(pixel) * source_.column_stride;
  }

  // Whether tiles hold the pixels in reverse order when they are split into planes.
  bool backwards() const { return !kCopied && source_.column_stride < 0; }

  // Assembles the band's pixels from `begin` on; `of` maps them to the image's pixels.
  template <class Of>
  void fill(const Tile<Value>& tile, std::size_t begin, const Of& of) const {
    const auto width = static_cast<std::ptrdiff_t>(batch_.width * tile.pixel());
    for_each_piece(tile, begin, [&](std::size_t offset, const PixelRows& piece) {
      if (tile.backwards) {
        const std::size_t position = tile.count - offset - piece.columns;
        pack(of(piece).mirrored(), tile, tile.data + position * tile.pixel(), -width);
      } else {
        pack(of(piece), tile, tile.data + offset * tile.pixel(), width);
      }
    });
  }

  // Calls piece(offset, pixels) for each piece of a tile, which begins at pixel number `offset` of
  // the tile.
  template <class Piece>
  void for_each_piece(const Tile<Value>& tile, std::size_t begin, const Piece& piece) const {
    if (one_run_) return piece(0, pixels(at(begin), 1, tile.count));
    const std::size_t width = batch_.width;
    std::size_t y = source_row_ + begin / width, x = begin % width, rows;
    for (std::size_t done = 0, columns; done < tile.count;
         done += rows * columns, x = 0, y += rows) {
      columns = std::min(width - x, tile.count - done);
      rows = columns < width ? 1 : (tile.count - done) / width;
      if (source_.crop == nullptr) {
        piece(done, pixels(pixel(y, x), rows, columns));
      } else {
        for_each_part(
            *source_.crop, tile, y, x, rows, columns,
            [&](std::size_t offset, const PixelRows& part) { piece(done + offset, part); });
      }
    }
  }

  // The same for rows and columns of a crop beyond its image: first the outside, then the
  // inside.
  template <class Part>
  void for_each_part(const ImageCrop& crop, const Tile<Value>& tile, std::size_t y, std::size_t x,
                     std::size_t rows, std::size_t columns, const Part& part) const {
    const auto height = static_cast<std::ptrdiff_t>(crop.height);
    const auto width = static_cast<std::ptrdiff_t>(crop.width);
    const auto first = crop.left + static_cast<std::ptrdiff_t>(x);
    const auto end = first + static_cast<std::ptrdiff_t>(columns);
    const bool filled = crop.border == Border::constant;
    for (std::size_t done = 0, taken; done < rows; done += taken) {
      const std::ptrdiff_t position = crop.top + static_cast<std::ptrdiff_t>(y + done);
      const std::ptrdiff_t row = within(position, crop.height, crop.border);
      taken = rows - done;
      if (row >= 0 && row == position) {
        taken = std::min(taken, static_cast<std::size_t>(height - row));
      } else if (!filled) {
        taken = 1;
      } else if (position < 0) {
        taken = std::min(taken, static_cast<std::size_t>(-position));
      }
      const std::ptrdiff_t image_begin = row < 0 ? end : std::clamp<std::ptrdiff_t>(0, first, end);
      const std::ptrdiff_t image_end = std::clamp(width, image_begin, end);
      const auto put = [&](std::ptrdiff_t column, const PixelRows& found) {
        part(done * batch_.width + static_cast<std::size_t>(column - first), found);
      };
      for (const auto& [from, to] : {std::pair{first, image_begin}, std::pair{image_end, end}}) {
        if (from == to) continue;
        const auto n = static_cast<std::size_t>(to - from);
        if (filled) {
          const PixelRows fill{crop.fill, 0, pixel_stride(), item_, taken, n};
          put(from, tile.backwards ? fill.mirrored() : fill);
        } else {
          PixelRows beyond = pixels(pixel(row, within(from, crop.width, crop.border)), taken, n);
          beyond.column_stride = crop.border == Border::edge ? 0 : -source_.column_stride;
          put(from, beyond);
        }
      }
      if (image_begin < image_end) {
        put(image_begin, pixels(pixel(row, image_begin), taken,
                                static_cast<std::size_t>(image_end - image_begin)));
      }
    }
  }

  template <class Index>
  const std::uint8_t* pixel(Index y, Index x) const {
    return source_.data + static_cast<std::ptrdiff_t>(y) * source_.row_stride +
           static_cast<std::ptrdiff_t>(x) * source_.column_stride;
  }

  PixelRows pixels(const std::uint8_t* first, std::size_t rows, std::size_t columns) const {
    return {first,  source_.row_stride, source_.column_stride, source_.channel_stride, rows,
            columns};
  }

  // Assembles pixels at `to`, in the order of a tile.
  void pack(const PixelRows& from, const Tile<Value>& tile, Value* to,
            std::ptrdiff_t to_stride) const {
    const auto size = static_cast<std::ptrdiff_t>(tile.pixel()) * item_;
    const bool adjacent = (tile.channels == 1 || from.channel_stride == item_) &&
                          (from.columns == 1 || from.column_stride == size);
    const std::size_t count = from.columns * tile.pixel() - tile.gap;
    if (in_place_) {
      auto* const bytes = reinterpret_cast<std::uint8_t*>(to);
      const std::ptrdiff_t stride = to_stride * item_;
      const auto item = static_cast<std::size_t>(item_);
      if (adjacent) {
        return runs_.copy_rows(from.data, from.row_stride, count * item, from.rows, bytes, stride);
      }
      if (can_pick(from, tile.channels, item)) {
        return runs_.pick_pixels(from, tile.channels, item, bytes, stride);
      }
    }
    PixelRows row = from;
    row.rows = 1;
    for (std::size_t y = 0; y < from.rows; ++y, row.data += from.row_stride, to += to_stride) {
      pack_items(row, tile.channels, adjacent, count, to);
    }
  }

  // A row of `count` items that are cast or copied one by one.
  void pack_items(const PixelRows& row, std::size_t channels, bool adjacent, std::size_t count,
                  Value* to) const {
    alignas(64) std::byte gathered[kBytes ? 1 : kTile * sizeof(std::int64_t)];
    const auto* from = reinterpret_cast<const std::byte*>(row.data);
    const auto item = static_cast<std::size_t>(item_);
    if (!adjacent) {
      std::byte* const near = in_place_ ? reinterpret_cast<std::byte*>(to) : gathered;
      if (!in_place_ && can_pick(row, channels, item)) {
        runs_.pick_pixels(row, channels, item, reinterpret_cast<std::uint8_t*>(near), 0);
      } else {
        Axis slow{row.columns, row.column_stride}, fast{channels, row.channel_stride};
        if (channels == 1) std::swap(slow, fast);
        copy_items(*runs_.permute, from, slow, fast, item, near, false);
      }
      from = near;
    }
    if (!in_place_) runs_.casts->find(batch_.in_type, kTileType)(from, count, to);
  }

  const ImageRuns& runs_;
  const ImageBatch& batch_;
  const ImageSource& source_;
  std::size_t image_;
  std::size_t row_;
  std::size_t source_row_;
  std::size_t pixels_;
  std::size_t channels_;
  int step_;
  std::ptrdiff_t item_;  // bytes of a source item
  bool in_place_;        // a primitive may read the source in place
  bool one_run_;         // consecutive pixels are column_stride apart, across rows too
};

}  // namespace
}  // namespace pinfeed::kernels
