#include "kernels/patches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/copy.h"
#include "kernels/resize.h"

namespace pinfeed::kernels {
namespace {

using Size = std::array<std::int64_t, 2>;

// Sides that are multiples of `factor`, with a number of pixels in range.
Size size_by_pixels(const PatchSizes& sizes, double height, double width) {
  const auto factor = static_cast<double>(sizes.patch * sizes.multiple);
  double rows = std::nearbyint(height / factor) * factor;
  double columns = std::nearbyint(width / factor) * factor;
  if (rows * columns > sizes.max_pixels) {
    const double shrink = std::sqrt(height * width / sizes.max_pixels);
    rows = std::max(factor, std::floor(height / shrink / factor) * factor);
    columns = std::max(factor, std::floor(width / shrink / factor) * factor);
  } else if (rows * columns < sizes.min_pixels) {
    const double grow = std::sqrt(sizes.min_pixels / (height * width));
    rows = std::ceil(height * grow / factor) * factor;
    columns = std::ceil(width * grow / factor) * factor;
  }
  return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
}

// The largest sides, within 1e-5 of the scale, with at most the allowed number of patches.
Size size_by_patches(const PatchSizes& sizes, double height, double width) {
  const auto patch = static_cast<double>(sizes.patch);
  const auto scaled = [&](double side, double scale) {
    return std::max(patch, std::ceil(side * scale / patch) * patch);
  };
  constexpr double kTolerance = 1e-5;
  double low = kTolerance / 10, high = 100;
  while (high - low >= kTolerance) {
    const double scale = (low + high) / 2;
    const double patches = scaled(height, scale) / patch * (scaled(width, scale) / patch);
    (patches <= static_cast<double>(sizes.max_patches) ? low : high) = scale;
  }
  return {static_cast<std::int64_t>(scaled(height, low)),
          static_cast<std::int64_t>(scaled(width, low))};
}

}  // namespace

PatchMisfit find_patched_size(const PatchSizes& sizes, std::int64_t height, std::int64_t width,
                              Size& patched) {
  const auto [shorter, longer] = std::minmax(height, width);
  if (shorter < std::max<std::int64_t>(sizes.min_side, 1)) return PatchMisfit::too_small;
  const auto rows = static_cast<double>(height), columns = static_cast<double>(width);
  if (sizes.max_pixels > 0) {
    constexpr double kMaxRatio = 200;
    if (static_cast<double>(longer) / static_cast<double>(shorter) > kMaxRatio) {
      return PatchMisfit::too_long;
    }
    patched = size_by_pixels(sizes, rows, columns);
  } else if (sizes.max_patches > 0) {
    patched = size_by_patches(sizes, rows, columns);
  } else {
    const std::int64_t factor = sizes.patch * sizes.multiple;
    if (height % factor != 0 || width % factor != 0) return PatchMisfit::indivisible;
    patched = {height, width};
  }
  return PatchMisfit::none;
}

// Note [Patches through a tile]
//
// Rows of a patch are too short for `normalize`: 14 pixels. So a row of adjacent blocks, all of
// them if they fit the cache, is normalized as one image, and their patches are copied out of it:
// 16 images of 448x448 take 1.15 times as long as a fill of their patches. With tiles of a third of
// a row it is 1.3 times, because the hardware doesn't predict such short rows.
//
// A plane of a patch begins anywhere in a cache line. It is assembled in a stage, behind the
// incomplete line of the planes before it, and streamed from there; twice, if a frame is repeated.
// A larger stage is slower.
namespace {

constexpr std::size_t kTileBytes = std::size_t{384} << 10;

class Stage {
 public:
  static constexpr std::size_t kMax = std::size_t{16} << 10;

  explicit Stage(std::byte* out)
      : lead_(reinterpret_cast<std::uintptr_t>(out) % kLine), first_(lead_), line_(out - lead_) {}

  // The address of the next bytes, at most kMost, that write() takes.
  std::byte* plane() { return bytes_ + kLine; }

  // Streams the whole lines of the first `count` bytes and keeps the rest. May be repeated.
  void write(std::size_t count) {
    std::byte* from = plane() - lead_;
    std::size_t lines = (lead_ + count) / kLine;
    lead_ = (lead_ + count) % kLine;
    if (lines > 0 && first_ > 0) {  // a line that begins with bytes of another range
      std::memcpy(line_ + first_, from + first_, kLine - first_);
      first_ = 0;
      line_ += kLine;
      from += kLine;
      --lines;
    }
    copy_lines(line_, from, lines);
    line_ += lines * kLine;
    std::byte last[kLine];  // a copy, because the target may overlap
    std::memcpy(last, plane() + count - kLine, kLine);
    std::memcpy(bytes_, last, kLine);
  }

  void finish() { std::memcpy(line_ + first_, plane() - lead_ + first_, lead_ - first_); }

 private:
  alignas(kLine) std::byte bytes_[kMax + 2 * kLine];
  std::size_t lead_;   // bytes of the incomplete line in front of the plane
  std::size_t first_;  // how many of them belong to another range
  std::byte* line_;    // the address of that line
};

// Copies short strided rows, in `parts` parts; the last part may overlap the one before.
constexpr std::size_t kPart = 16;

template <std::size_t parts>
void join_rows_of(std::byte* to, const std::byte* from, std::size_t rows, std::size_t bytes,
                  std::size_t stride) {
  for (std::size_t row = 0; row < rows; ++row, to += bytes, from += stride) {
    for (std::size_t part = 0; part + 1 < parts; ++part) {
      std::memcpy(to + part * kPart, from + part * kPart, kPart);
    }
    std::memcpy(to + bytes - kPart, from + bytes - kPart, kPart);
  }
}

// Rows are short, 56 bytes for 14 floats: with a constant number of parts each takes a few
// instructions.
void join_rows(std::byte* to, const std::byte* from, std::size_t rows, std::size_t bytes,
               std::size_t stride) {
  if (bytes >= kPart && bytes <= 4 * kPart) {
    constexpr decltype(&join_rows_of<1>) joins[] = {join_rows_of<1>, join_rows_of<2>,
                                                    join_rows_of<3>, join_rows_of<4>};
    return joins[(bytes - 1) / kPart](to, from, rows, bytes, stride);
  }
  for (std::size_t row = 0; row < rows; ++row, to += bytes, from += stride) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

void write_patches(const ResizeRuns& runs, const PatchOrder& order, const ImageBatch& group,
                   std::size_t row_begin, std::size_t row_end) {
  thread_local std::vector<std::byte> tile_bytes;
  const bool is_chw = group.out_layout == ImageLayout::chw;
  const std::size_t item = pixel_size(group.out_type), side = order.rows();
  const std::size_t planes = is_chw ? group.channels : 1;  // of each frame
  const std::size_t pixel = is_chw ? item : group.channels * item;
  const std::size_t row_bytes = order.size * pixel, plane_bytes = order.size * row_bytes;
  const std::size_t patch_bytes = plane_bytes * planes * order.frames;
  // Otherwise planes of other frames lie between the planes to write.
  const bool is_whole = order.slots == order.frames;
  const bool is_staged = group.streaming && is_whole && plane_bytes <= Stage::kMax;

  const std::size_t merged = order.merge * order.merge, blocks = group.width / side;
  const std::size_t block_bytes = group.count * group.channels * side * side * item;
  const std::size_t tiles = (blocks * block_bytes + kTileBytes - 1) / kTileBytes;  // of a row
  const std::size_t high = (blocks + tiles - 1) / tiles;
  tile_bytes.resize(std::max(tile_bytes.size(), high * block_bytes));
  ImageSource sources[PatchOrder::kMaxFrames];
  ImageCrop crops[PatchOrder::kMaxFrames];
  ImageBatch tile = group;
  tile.sources = sources;
  tile.height = side;
  tile.first_row = 0;
  tile.frames = 1;
  tile.out = tile_bytes.data();
  tile.streaming = false;

  auto* out = static_cast<std::byte*>(group.out) + row_begin / side * blocks * merged * patch_bytes;
  Stage stage(out);
  const auto write_patch = [&](const std::byte* from, std::size_t stride) {
    for (std::size_t plane = 0; plane < planes; ++plane) {
      for (std::size_t i = 0; i < order.slots; ++i) {
        std::byte* const to =
            is_staged ? stage.plane() : out + (plane * order.frames + order.slot + i) * plane_bytes;
        if (i == 0 || group.count > 1 || !is_staged) {
          const std::size_t frame = group.count == 1 ? 0 : i;
          join_rows(to, from + (frame * planes + plane) * side * stride, order.size, row_bytes,
                    stride);
        }
        if (is_staged) stage.write(plane_bytes);
      }
    }
    out += patch_bytes;
  };
  for (std::size_t y = row_begin; y < row_end; y += side) {
    for (std::size_t block = 0, count; block < blocks; block += count) {
      count = std::min(high, blocks - block);
      for (std::size_t i = 0; i < group.count; ++i) {
        sources[i] =
            seen_from(static_cast<std::ptrdiff_t>(y - group.first_row),
                      static_cast<std::ptrdiff_t>(block * side), group.sources[i], crops[i]);
      }
      tile.width = count * side;
      runs.normalize(tile, 0, group.count * side);
      const std::size_t stride = tile.width * pixel;
      for (std::size_t i = 0; i < count * merged; ++i) {
        const std::size_t inner = i % merged;
        const std::size_t row = inner / order.merge * order.size;
        const std::size_t column = i / merged * order.merge + inner % order.merge;
        write_patch(tile_bytes.data() + row * stride + column * row_bytes, stride);
      }
    }
  }
  if (is_staged) stage.finish();
  if (group.streaming) stores_done();
}

}  // namespace pinfeed::kernels
