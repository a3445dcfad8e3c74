// Stretches of an image, cut into runs of adjacent bytes for an instruction set's primitives.
//
// Note [Tiles]
// Images whose pixels don't stand next to each other in memory (crops, mirrored views, planes that
// must be interleaved) are first copied, a tile at a time, into the order that a primitive reads.
// A tile fits in the L1 cache, so that this pass costs instructions but no memory traffic. A
// source that is already in order is read where it lies. A window that leaves its image is put
// together in the tile as well: pixels beyond an edge are a stretch with other strides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/copy.h"
#include "kernels/image.h"
#include "kernels/image_runs.h"

namespace pinfeed::kernels {
namespace {

constexpr std::size_t kTileBytes = 4096;

std::byte* advance(void* out, std::size_t index, PixelType type) {
  return static_cast<std::byte*>(out) + index * pixel_size(type);
}

// Pixels of one row, as far apart from each other as from channel to channel the strides say.
struct Stretch {
  const std::uint8_t* data;
  std::ptrdiff_t column_stride;
  std::ptrdiff_t channel_stride;

  // The same with the channels in reverse order.
  Stretch reversed(std::size_t channels) const {
    return {data + static_cast<std::ptrdiff_t>(channels - 1) * channel_stride, column_stride,
            -channel_stride};
  }
};

// Rows [row, row + rows) of an image as wide as its place, or one row of a narrower one.
class Band {
 public:
  Band(const ImageRuns& runs, const ImageBatch& batch, std::size_t image, std::size_t row,
       std::size_t rows, std::size_t width)
      : runs_(runs),
        batch_(batch),
        source_(batch.sources[image]),
        image_(image),
        row_(row),
        pixels_(rows * width),
        channels_(batch.channels),
        step_(step_index(batch.channels)) {
    one_run_ = source_.window == nullptr &&
               (rows <= 1 ||
                source_.row_stride == static_cast<std::ptrdiff_t>(width) * source_.column_stride);
  }

  // `constants` are the expanded tables of the packed primitive, for HWC.
  void write(bool hwc, const PackedConstants& constants) const {
    if (!hwc) {
      write_chw();
    } else if (linear_hwc()) {
      write_packed(at(0), 0, pixels_, constants);
    } else {
      write_hwc(constants);
    }
  }

  // Whether the source's bytes follow each other in memory as those of an HWC output do.
  bool linear_hwc() const {
    return one_run_ && source_.column_stride == static_cast<std::ptrdiff_t>(channels_) &&
           (source_.channel_stride == 1 || channels_ == 1);
  }

  // Takes along the images after this one: `images` in all, whose bytes follow each other.
  void extend(std::size_t images) { pixels_ *= images; }

 private:
  static constexpr float kNone[4] = {};  // scale and bias of a plain permutation, which has none

  void write_chw() const {
    const bool packed = packed_either_way();
    const auto write = [&](std::size_t begin, std::size_t count) {
      if (packed) {
        write_planes_from_pixels(begin, count);
      } else {
        write_planes_one_by_one(begin, count);
      }
    };
    const auto step = packed ? static_cast<std::ptrdiff_t>(channels_) : 1;
    if (one_run_ && source_.column_stride == step) return write(0, pixels_);
    const std::size_t tile = std::clamp(kTileBytes / channels_, std::size_t{64}, kTileBytes) & ~63u;
    for_each_tile(tile, 1, write);
  }

  void write_hwc(const PackedConstants& constants) const {
    const std::size_t tile = std::max(kTileBytes / channels_ & ~std::size_t{63}, std::size_t{1});
    alignas(64) std::uint8_t buffer[kTileBytes];
    for_each_tile(tile, channels_, [&](std::size_t begin, std::size_t count) {
      fill_pixels(count, false, buffer);
      for_each_piece(begin, count, [&](std::size_t offset, const Stretch& from, std::size_t n) {
        pack_pixels(from, n, buffer + offset * channels_);
      });
      write_packed(buffer, begin, count, constants);
    });
  }

  // Calls write(begin, count) for all pixels, at most `tile` at a time. The first tile is shorter,
  // so that all others begin where a cache line of the output does; `items` of a pixel stand
  // together there.
  template <class Write>
  void for_each_tile(std::size_t tile, std::size_t items, const Write& write) const {
    std::size_t count = tile;
    if (batch_.streaming && pixels_ > tile && tile >= kLine) {
      const std::size_t planes = channels_ / items, pixel = items * pixel_size(batch_.out_type);
      const std::size_t index = (image_ * planes * batch_.height + row_) * batch_.width;
      const auto address = reinterpret_cast<std::uintptr_t>(batch_.out) + index * pixel;
      while (count > tile - kLine && (address + count * pixel) % kLine != 0) --count;
      if (count == tile - kLine) count = tile;  // no pixel begins a line
    }
    for (std::size_t begin = 0; begin < pixels_; begin += count, count = tile) {
      count = std::min(count, pixels_ - begin);
      write(begin, count);
    }
  }

  // Pixels [begin, begin + count) of the band.
  void write_packed(const std::uint8_t* values, std::size_t begin, std::size_t count,
                    const PackedConstants& constants) const {
    const std::size_t index = ((image_ * batch_.height + row_) * batch_.width + begin) * channels_;
    runs_.packed[static_cast<std::size_t>(batch_.out_type)](
        values, count * channels_, constants, 0, advance(batch_.out, index, batch_.out_type),
        batch_.streaming);
  }

  // Pixels of 3 or 4 adjacent bytes, in either channel order (RGB or BGR).
  bool packed_either_way() const {
    const auto size = static_cast<std::ptrdiff_t>(channels_);
    return step_ > 0 && (source_.column_stride == size || source_.column_stride == -size) &&
           (source_.channel_stride == 1 || source_.channel_stride == -1);
  }

  void write_planes_from_pixels(std::size_t begin, std::size_t count) const {
    const bool bgr = source_.channel_stride < 0;
    alignas(64) std::uint8_t buffer[kTileBytes];
    const std::uint8_t* pixels = buffer;
    if (one_run_ && source_.column_stride > 0) {
      pixels = at(begin) - (bgr ? channels_ - 1 : 0);
    } else {
      fill_pixels(count, bgr, buffer);
      for_each_piece(begin, count, [&](std::size_t offset, const Stretch& from, std::size_t n) {
        pack_pixels(bgr ? from.reversed(channels_) : from, n, buffer + offset * channels_);
      });
    }
    if (!bgr) {
      write_planes(step_, pixels, count, scale(0), bias(0), 0, begin, 1);
    } else {
      float scales[4], biases[4];
      for (std::size_t c = 0; c < channels_; ++c) {
        scales[c] = *scale(channels_ - 1 - c);
        biases[c] = *bias(channels_ - 1 - c);
      }
      write_planes(step_, pixels, count, scales, biases, channels_ - 1, begin, -1);
    }
  }

  void write_planes_one_by_one(std::size_t begin, std::size_t count) const {
    alignas(64) std::uint8_t buffer[kTileBytes];
    for (std::size_t c = 0; c < channels_; ++c) {
      const std::uint8_t* values = buffer;
      if (one_run_ && source_.column_stride == 1) {
        values = at(begin) + static_cast<std::ptrdiff_t>(c) * source_.channel_stride;
      } else {
        if (is_filled()) std::memset(buffer, source_.window->fill[c], count);
        for_each_piece(begin, count, [&](std::size_t offset, const Stretch& from, std::size_t n) {
          pack_channel(from, c, n, buffer + offset);
        });
      }
      write_planes(0, values, count, scale(c), bias(c), c, begin, 1);
    }
  }

  // Pixels [begin, begin + count) of the band; their channel 0 goes to plane `first_plane`, the
  // others to the planes after it (direction 1) or before it (-1).
  void write_planes(int step, const std::uint8_t* pixels, std::size_t count, const float* scale,
                    const float* bias, std::size_t first_plane, std::size_t begin,
                    std::ptrdiff_t direction) const {
    const std::size_t plane = batch_.height * batch_.width;
    const std::size_t index =
        (image_ * channels_ + first_plane) * plane + row_ * batch_.width + begin;
    const auto stride = static_cast<std::ptrdiff_t>(plane * pixel_size(batch_.out_type));
    runs_.planes[static_cast<std::size_t>(batch_.out_type)][step](
        pixels, count, scale, bias, advance(batch_.out, index, batch_.out_type), direction * stride,
        batch_.streaming);
  }

  const float* scale(std::size_t channel) const {
    return scaled() ? batch_.scale + channel : kNone;
  }
  const float* bias(std::size_t channel) const { return scaled() ? batch_.bias + channel : kNone; }
  bool scaled() const { return batch_.out_type != PixelType::uint8; }

  // Address of channel 0 of the band's pixel number `pixel`, for a band that is one run.
  const std::uint8_t* at(std::size_t pixel) const {
    return source_.data + static_cast<std::ptrdiff_t>(row_) * source_.row_stride +
           static_cast<std::ptrdiff_t>(pixel) * source_.column_stride;
  }

  // Calls piece(offset, from, n) for every stretch of a row in the pixels [begin, begin + count),
  // but for those of a constant border.
  template <class Piece>
  void for_each_piece(std::size_t begin, std::size_t count, const Piece& piece) const {
    if (one_run_) {
      piece(0, stretch(at(begin)), count);
      return;
    }
    std::size_t y = row_ + begin / batch_.width, x = begin % batch_.width;
    if (source_.window != nullptr) return for_each_part(*source_.window, y, x, count, piece);
    for (std::size_t done = 0; done < count; x = 0, ++y) {
      const std::size_t n = std::min(batch_.width - x, count - done);
      piece(done, stretch(pixel(y, x)), n);
      done += n;
    }
  }

  // The same for a window: stretches before the image, in it and after it.
  template <class Piece>
  void for_each_part(const ImageWindow& window, std::size_t y, std::size_t x, std::size_t count,
                     const Piece& piece) const {
    const auto width = static_cast<std::ptrdiff_t>(window.width);
    for (std::size_t done = 0; done < count; x = 0, ++y) {
      const std::size_t n = std::min(batch_.width - x, count - done);
      const std::ptrdiff_t row =
          within(window.top + static_cast<std::ptrdiff_t>(y), window.height, window.border);
      if (row >= 0) {
        const std::ptrdiff_t first = window.left + static_cast<std::ptrdiff_t>(x);
        const std::ptrdiff_t end = first + static_cast<std::ptrdiff_t>(n);
        const std::ptrdiff_t image_begin = std::clamp<std::ptrdiff_t>(0, first, end);
        const std::ptrdiff_t image_end = std::clamp(width, image_begin, end);
        const auto part = [&](std::ptrdiff_t from, std::ptrdiff_t to, const Stretch& pixels) {
          piece(done + static_cast<std::size_t>(from - first), pixels,
                static_cast<std::size_t>(to - from));
        };
        if (image_begin < image_end) {
          part(image_begin, image_end, stretch(pixel(row, image_begin)));
        }
        if (window.border != Border::constant) {
          if (first < image_begin) part(first, image_begin, beyond(window, row, first));
          if (image_end < end) part(image_end, end, beyond(window, row, image_end));
        }
      }
      done += n;
    }
  }

  // The pixels from `column` on, which lies before the image or after it.
  Stretch beyond(const ImageWindow& window, std::ptrdiff_t row, std::ptrdiff_t column) const {
    Stretch found = stretch(pixel(row, within(column, window.width, window.border)));
    found.column_stride = window.border == Border::edge ? 0 : -source_.column_stride;
    return found;
  }

  bool is_filled() const {
    return source_.window != nullptr && source_.window->border == Border::constant;
  }

  // Writes pixels of a constant border, if there is one.
  void fill_pixels(std::size_t count, bool bgr, std::uint8_t* to) const {
    if (!is_filled()) return;
    const std::uint8_t* const fill = source_.window->fill;
    if (std::all_of(fill, fill + channels_, [&](std::uint8_t value) { return value == *fill; })) {
      std::memset(to, *fill, count * channels_);
      return;
    }
    const Stretch pixel{fill, 0, 1};
    pack_pixels(bgr ? pixel.reversed(channels_) : pixel, count, to);
  }

  template <class Index>
  const std::uint8_t* pixel(Index y, Index x) const {
    return source_.data + static_cast<std::ptrdiff_t>(y) * source_.row_stride +
           static_cast<std::ptrdiff_t>(x) * source_.column_stride;
  }

  Stretch stretch(const std::uint8_t* first) const {
    return {first, source_.column_stride, source_.channel_stride};
  }

  void pack_channel(const Stretch& from, std::size_t channel, std::size_t n,
                    std::uint8_t* to) const {
    const std::uint8_t* values =
        from.data + static_cast<std::ptrdiff_t>(channel) * from.channel_stride;
    const std::ptrdiff_t step = from.column_stride;
    if (step == 1) {
      std::memcpy(to, values, n);
    } else if (step == -1) {
      runs_.reverse[0](values - (n - 1), n, to);
    } else if (step == 0) {
      std::memset(to, *values, n);
    } else {
      for (std::size_t i = 0; i < n; ++i, values += step) to[i] = *values;
    }
  }

  void pack_pixels(const Stretch& from, std::size_t n, std::uint8_t* to) const {
    const auto size = static_cast<std::ptrdiff_t>(channels_);
    const std::uint8_t* pixel = from.data;
    if (from.channel_stride == 1 && from.column_stride == size) {
      std::memcpy(to, pixel, n * channels_);
    } else if (from.channel_stride == 1 && from.column_stride == -size && step_ >= 0) {
      runs_.reverse[step_](pixel - (n - 1) * channels_, n, to);
    } else if (from.column_stride == 1 && step_ > 0) {
      runs_.interleave[step_](pixel, from.channel_stride, n, to);
    } else {
      for (std::size_t i = 0; i < n; ++i, pixel += from.column_stride) {
        const std::uint8_t* value = pixel;
        for (std::size_t c = 0; c < channels_; ++c, value += from.channel_stride) *to++ = *value;
      }
    }
  }

  const ImageRuns& runs_;
  const ImageBatch& batch_;
  const ImageSource& source_;
  std::size_t image_;
  std::size_t row_;
  std::size_t pixels_;
  std::size_t channels_;
  int step_;
  bool one_run_;  // consecutive pixels are column_stride apart, across rows too
};

}  // namespace
}  // namespace pinfeed::kernels
