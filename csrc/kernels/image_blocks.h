// From blocks to runs: the part of image_runs.h's primitives that does not depend on the
// instruction set: head, tail and alignment. An instruction set `Isa` has the tables `casts` and
// `permute`, and supplies, the first two for bytes and for float32,
//
//   planes_blocks<Type, Step, Channels, Streaming, Backwards>(
//       pixels, blocks, scale, bias, out, plane_stride)
//   packed_blocks<Type, Streaming>(values, blocks, constants, phase, out)
//   pick_blocks(from, from_step, blocks, table, to, to_step)  // byte i of 16 is from[table[i]]
//   copy_rows(from, from_stride, bytes, rows, to, to_stride)  // copy_by<its vector size>
//
// all except the last on whole blocks of kBlock values. `pixels` is the block that is read
// first: the last one in memory if Backwards, where pixels are counted from their end. For
// streaming stores, `out` is aligned to a cache line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/copy.h"
#include "kernels/image_runs.h"

namespace pinfeed::kernels {

// Covers `count` values with calls of blocks(streaming, first value, number of blocks) and, for
// fewer values than a block, part(first value, number of values).
//
// Streaming stores write whole cache lines that no other store touches: a line that regular and
// streaming stores share is written to memory in pieces, and the core waits for each. The values
// before the first whole line and after the last are written like separate runs.
template <PixelType Type, class Blocks, class Part>
void cover_run(std::size_t count, const void* out, bool streaming, const Blocks& blocks,
               const Part& part) {
  constexpr std::size_t size = pixel_size(Type), line = kLine / size;
  const auto ordinary = [&](std::size_t first, std::size_t values) {
    if (values == 0) return;
    if (values < kBlock) return part(first, values);
    blocks(std::false_type{}, first, values / kBlock);
    // The last block overlaps the one before it, so no single values remain: writing a value twice
    // is faster than a scalar loop, and both writes are the same.
    if (values % kBlock != 0) blocks(std::false_type{}, first + values - kBlock, 1);
  };
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(out) % kLine;
  if (!streaming || head % size != 0 || count < head / size + kLine) return ordinary(0, count);
  const std::size_t begin = head / size, lines = (count - begin) / line;
  ordinary(0, begin);
  blocks(std::true_type{}, begin, lines * (line / kBlock));
  const std::size_t end = begin + lines * line;
  ordinary(end, count - end);
}

template <class Isa, PixelType Type, int Step, class Value, int Channels = Step>
void planes_run(const Value* pixels, std::size_t count, const float* scale, const float* bias,
                void* out, std::ptrdiff_t plane_stride, bool streaming, bool backwards) {
  constexpr std::size_t size = pixel_size(Type), kGap = Step - Channels;
  const auto plane = [&](std::size_t c) {
    return static_cast<std::byte*>(out) + static_cast<std::ptrdiff_t>(c) * plane_stride;
  };
  // The address of the pixels that become `values` of each plane from `first` on.
  const auto source = [&](std::size_t first, std::size_t values) {
    return pixels + (backwards ? count - first - values : first) * Step;
  };
  if (Step > 1 && streaming && plane_stride % static_cast<std::ptrdiff_t>(kLine) != 0) {
    // The planes are aligned differently to cache lines. So a part of the run is converted in the
    // L1 cache, each plane with the alignment of the output, and streamed from there; an incomplete
    // line is written with the next part.
    constexpr std::size_t kStretchBytes = 4096, kStretch = kStretchBytes / size;
    alignas(kLine) std::byte stage[Channels * (kStretchBytes + 2 * kLine)];
    const auto lead = [](const std::byte* address) {
      return reinterpret_cast<std::uintptr_t>(address) % kLine;
    };
    const auto skew = static_cast<std::size_t>(plane_stride) % kLine;
    const std::size_t stage_stride = kStretchBytes + kLine + skew;
    std::byte* const first = stage + lead(plane(0));
    for (std::size_t begin = 0; begin < count; begin += kStretch) {
      const std::size_t n = std::min(kStretch, count - begin);
      planes_run<Isa, Type, Step, Value, Channels>(source(begin, n), n, scale, bias, first,
                                                   static_cast<std::ptrdiff_t>(stage_stride), false,
                                                   backwards);
      for (std::size_t c = 0; c < Channels; ++c) {
        std::byte *const from = first + c * stage_stride, *const to = plane(c) + begin * size;
        const std::size_t before = begin == 0 ? 0 : lead(to);
        const std::size_t left = begin + n == count ? 0 : lead(to);
        copy_bytes(to - before, from - before, before + n * size - left, true);
        std::memcpy(from - left, from + n * size - left, left);
      }
    }
    return;
  }
  const auto write = [&](auto stream, const Value* from, std::size_t blocks, std::byte* to,
                         std::ptrdiff_t stride) {
    if (backwards) {
      Isa::template planes_blocks<Type, Step, Channels, stream.value, true>(from, blocks, scale,
                                                                            bias, to, stride);
    } else {
      Isa::template planes_blocks<Type, Step, Channels, stream.value, false>(from, blocks, scale,
                                                                             bias, to, stride);
    }
  };
  const auto write_part = [&](std::size_t first, std::size_t values) {
    Value from[kBlock * Step] = {};
    alignas(kLine) std::byte to[Channels * kBlock * size];
    std::memcpy(from + (backwards ? kBlock - values : 0) * Step, source(first, values),
                (values * Step - kGap) * sizeof(Value));
    write(std::false_type{}, from, 1, to, kBlock * size);
    for (std::size_t c = 0; c < Channels; ++c) {
      std::memcpy(plane(c) + first * size, to + c * kBlock * size, values * size);
    }
  };
  cover_run<Type>(
      count, out, streaming,
      [&](auto stream, std::size_t first, std::size_t blocks) {
        // The gap behind the last pixel may be unmapped memory.
        const bool is_last = kGap > 0 && !backwards && first + blocks * kBlock == count;
        if (is_last) write_part(count - kBlock, kBlock);
        write(stream, source(first, kBlock), blocks - (is_last ? 1 : 0), plane(0) + first * size,
              plane_stride);
      },
      write_part);
}

template <class Isa, PixelType Type, class Value>
void packed_run(const Value* values, std::size_t count, const PackedConstants& constants, void* out,
                bool streaming) {
  constexpr std::size_t size = pixel_size(Type);
  const auto at = [&](std::size_t value) { return static_cast<std::byte*>(out) + value * size; };
  cover_run<Type>(
      count, out, streaming,
      [&](auto stream, std::size_t first, std::size_t blocks) {
        Isa::template packed_blocks<Type, stream.value>(values + first, blocks, constants,
                                                        first % constants.period, at(first));
      },
      [&](std::size_t first, std::size_t n) {
        Value from[kBlock] = {};
        alignas(kLine) std::byte to[kBlock * size];
        std::memcpy(from, values + first, n * sizeof(Value));
        Isa::template packed_blocks<Type, false>(from, 1, constants, first % constants.period, to);
        std::memcpy(at(first), to, n * size);
      });
}

inline void packed_run_uint8(const std::uint8_t* values, std::size_t count, const PackedConstants&,
                             void* out, bool streaming) {
  copy_bytes(out, values, count, streaming);
}

// The bytes from which pixels are picked, and the number of pixels at a time.
struct PickTable {
  std::ptrdiff_t column_stride = 0;
  std::ptrdiff_t channel_stride = 0;
  std::size_t channels = 0;
  std::size_t item = 0;
  std::size_t step = 0;
  alignas(kPicked) std::uint8_t bytes[kPicked] = {};

  bool is_of(const PixelRows& from, std::size_t of_channels, std::size_t of_item) const {
    return from.column_stride == column_stride && from.channel_stride == channel_stride &&
           of_channels == channels && of_item == item;
  }
};

inline PickTable make_pick_table(const PixelRows& from, std::size_t channels, std::size_t item) {
  const auto pixel = static_cast<std::size_t>(std::abs(from.column_stride));
  const auto channel = static_cast<std::size_t>(std::abs(from.channel_stride));
  const std::size_t span = pixel_span(from, channels, item), packed = channels * item;
  PickTable table{from.column_stride, from.channel_stride, channels, item,
                  std::min((kPicked - span) / pixel + 1, kPicked / packed)};
  for (std::size_t p = 0; p < table.step; ++p) {
    std::uint8_t* const indices =
        table.bytes + (from.column_stride < 0 ? kPicked - (p + 1) * packed : p * packed);
    for (std::size_t i = 0; i < packed; ++i) {
      const std::size_t c = from.channel_stride < 0 ? channels - 1 - i / item : i / item;
      indices[i] = static_cast<std::uint8_t>(p * pixel + c * channel + i % item);
    }
  }
  return table;
}

template <class Isa>
void pick_run(const PixelRows& from, std::size_t channels, std::size_t item, std::uint8_t* to,
              std::ptrdiff_t to_stride) {
  // All rows of an image are the same.
  thread_local PickTable table;
  if (!table.is_of(from, channels, item)) table = make_pick_table(from, channels, item);
  const bool mirrored = from.column_stride < 0, swapped = from.channel_stride < 0;
  const auto pixel = static_cast<std::size_t>(std::abs(from.column_stride));
  const std::size_t span = pixel_span(from, channels, item), packed = channels * item;
  // This many pixels are read and written at a time. Excess bytes are overwritten by the next
  // pixels.
  const std::size_t step = table.step;
  const auto to_step = static_cast<std::ptrdiff_t>(step * packed) * (mirrored ? -1 : 1);
  const std::size_t bytes = (from.columns - 1) * pixel + span, out_bytes = from.columns * packed;
  std::size_t blocks = 0;
  if (std::min(bytes, out_bytes) >= kPicked) {
    blocks =
        1 + std::min((bytes - kPicked) / (step * pixel), (out_bytes - kPicked) / (step * packed));
  }
  const std::uint8_t* row = from.data;
  if (mirrored) row += static_cast<std::ptrdiff_t>(from.columns - 1) * from.column_stride;
  if (swapped) row += static_cast<std::ptrdiff_t>(channels - 1) * from.channel_stride;
  for (std::size_t y = 0; y < from.rows; ++y, row += from.row_stride, to += to_stride) {
    Isa::pick_blocks(row, static_cast<std::ptrdiff_t>(step * pixel), blocks, table.bytes,
                     mirrored && blocks > 0 ? to + out_bytes - kPicked : to, to_step);
    for (std::size_t x = blocks * step; x < from.columns; x += step) {
      const std::size_t n = std::min(step, from.columns - x);
      std::uint8_t in[kPicked] = {}, out[kPicked];
      std::memcpy(in, row + x * pixel, std::min(kPicked, bytes - x * pixel));
      Isa::pick_blocks(in, 0, 1, table.bytes, out, 0);
      std::memcpy(to + (mirrored ? from.columns - x - n : x) * packed,
                  mirrored ? out + kPicked - n * packed : out, n * packed);
    }
  }
}

// CopyRows by vectors of `Bytes`. Not by memcpy, because a call costs more than a short copy, and
// long copies from memory were slower too.
template <std::size_t Bytes>
__attribute__((always_inline)) inline void copy_by(const std::uint8_t* from,
                                                   std::ptrdiff_t from_stride, std::size_t bytes,
                                                   std::size_t rows, std::uint8_t* to,
                                                   std::ptrdiff_t to_stride) {
  if constexpr (Bytes > 1) {
    if (bytes < Bytes) return copy_by<Bytes / 2>(from, from_stride, bytes, rows, to, to_stride);
  }
  const std::size_t last = bytes - Bytes;
  for (std::size_t y = 0; y < rows; ++y, from += from_stride, to += to_stride) {
    for (std::size_t x = 0; x < last; x += Bytes) std::memcpy(to + x, from + x, Bytes);
    std::memcpy(to + last, from + last, Bytes);
  }
}

template <class Isa, PixelType Type, class Value>
constexpr void add_runs(ValueRuns<Value>& runs) {
  constexpr auto type = static_cast<std::size_t>(Type);
  runs.planes[type][0] = planes_run<Isa, Type, 1, Value>;
  runs.planes[type][1] = planes_run<Isa, Type, 3, Value>;
  runs.planes[type][2] = planes_run<Isa, Type, 4, Value>;
  runs.planes[type][kThreeOfFour] = planes_run<Isa, Type, 4, Value, 3>;
  if constexpr (Type == PixelType::uint8) {
    runs.packed[type] = packed_run_uint8;
  } else {
    runs.packed[type] = packed_run<Isa, Type, Value>;
  }
}

template <class Isa>
constexpr ImageRuns make_image_runs() {
  ImageRuns runs{
      .bytes = {},
      .floats = {},
      .pick_pixels = pick_run<Isa>,
      .copy_rows = Isa::copy_rows,
      .casts = Isa::casts,
      .permute = Isa::permute,
  };
  const auto add = [](auto& values) {
    add_runs<Isa, PixelType::float32>(values);
    add_runs<Isa, PixelType::float16>(values);
    add_runs<Isa, PixelType::bfloat16>(values);
  };
  add(runs.bytes);
  add(runs.floats);
  add_runs<Isa, PixelType::uint8>(runs.bytes);
  return runs;
}

}  // namespace pinfeed::kernels
