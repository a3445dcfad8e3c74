#include "kernels/patches.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/copy.h"
#include "kernels/prefetch.h"

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

// The largest, within 1e-5 of the scale, whose patches are no more than allowed.
Size size_by_patches(const PatchSizes& sizes, double height, double width) {
  const auto patch = static_cast<double>(sizes.patch);
  const auto scaled = [&](double side, double scale) {
    return std::max(patch, std::ceil(side * scale / patch) * patch);
  };
  constexpr double kTolerance = 1e-5;
  double least = kTolerance / 10, most = 100;
  while (most - least >= kTolerance) {
    const double scale = (least + most) / 2;
    const double patches = scaled(height, scale) / patch * (scaled(width, scale) / patch);
    (patches <= static_cast<double>(sizes.max_patches) ? least : most) = scale;
  }
  return {static_cast<std::int64_t>(scaled(height, least)),
          static_cast<std::int64_t>(scaled(width, least))};
}

}  // namespace

PatchMisfit find_patched_size(const PatchSizes& sizes, std::int64_t height, std::int64_t width,
                              Size& patched) {
  const auto [shorter, longer] = std::minmax(height, width);
  if (shorter < std::max<std::int64_t>(sizes.min_side, 1)) return PatchMisfit::too_small;
  const auto rows = static_cast<double>(height), columns = static_cast<double>(width);
  if (sizes.max_pixels > 0) {
    constexpr double kMostRatio = 200;
    if (static_cast<double>(longer) / static_cast<double>(shorter) > kMostRatio) {
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

// Note [Patches on a stage]
//
// A patch is a batch of its own for `normalize`: one small image, or a clip of its frames. Its
// planes are short and begin anywhere in a cache line, so a few patches are put together in the L1
// cache, as far from the beginning of a line as they are in the output, and streamed from there.
// What they leave of a line stands in front of the next ones.

class Stage {
 public:
  static constexpr std::size_t kBytes = std::size_t{16} << 10;

  explicit Stage(std::byte* out) : out_(out), lead_(reinterpret_cast<std::uintptr_t>(out) % kLine) {
    first_ = lead_;
  }

  // Where the next bytes go, at most kBytes.
  std::byte* next() { return bytes_ + lead_; }

  // Writes them, but for what they leave of a line.
  void write(std::size_t count) {
    std::byte* to = out_ - lead_;
    const std::byte* from = bytes_;
    std::size_t lines = (lead_ + count) / kLine;
    out_ += count;
    if (lines > 0 && first_ > 0) {  // a line that begins with bytes of others
      std::memcpy(to + first_, from + first_, kLine - first_);
      first_ = 0;
      to += kLine;
      from += kLine;
      --lines;
    }
    copy_lines(to, from, lines);
    from += lines * kLine;
    if (from != bytes_) std::memcpy(bytes_, from, kLine);
    lead_ = (lead_ + count) % kLine;
  }

  void finish() { std::memcpy(out_ - lead_ + first_, bytes_ + first_, lead_ - first_); }

 private:
  alignas(kLine) std::byte bytes_[kBytes + 2 * kLine];
  std::byte* out_;  // where the next bytes belong
  std::size_t lead_;
  std::size_t first_;  // the bytes of the first line that are not ours
};

void write_patches(NormalizeImages normalize, const PatchOrder& order, const ImageBatch& group,
                   std::size_t row_begin, std::size_t row_end) {
  const bool is_chw = group.out_layout == ImageLayout::chw;
  const bool is_whole = order.slots == order.frames;
  const std::size_t plane_bytes = order.size * order.size * pixel_size(group.out_type);
  const std::size_t frame_bytes = plane_bytes * group.channels;
  const std::size_t patch_bytes = frame_bytes * order.frames;
  // Planes of whole lines are streamed as they are made.
  const bool has_lines =
      ((is_chw ? plane_bytes : frame_bytes) | reinterpret_cast<std::uintptr_t>(group.out)) %
          kLine ==
      0;
  const bool is_repeated = is_whole && group.count == 1 && order.frames > 1;
  const bool is_staged =
      group.streaming && is_whole && patch_bytes <= Stage::kBytes && (is_repeated || !has_lines);
  const std::size_t most = std::clamp<std::size_t>(Stage::kBytes / patch_bytes, 1,
                                                   PatchOrder::kMostFrames / order.frames);

  alignas(kLine) std::byte once[Stage::kBytes / 2];
  ImageSource sources[PatchOrder::kMostFrames];
  ImageWindow windows[PatchOrder::kMostFrames];
  ImageBatch patches = group;
  patches.height = patches.width = order.size;
  patches.frames = is_chw ? order.frames : 1;
  patches.first_row = 0;
  patches.streaming = group.streaming && is_whole && !is_staged && !is_repeated;

  const std::size_t merged = order.merge * order.merge, width = group.width / order.size;
  const std::size_t blocks = width / order.merge;  // in a row
  // What is seen of the group's frame number `frame` in a patch.
  const auto source_of = [&](std::size_t patch, std::size_t frame, ImageWindow& window) {
    const std::size_t block = patch / merged, inner = patch % merged;
    const std::size_t y = block / blocks * order.merge + inner / order.merge;
    const std::size_t x = block % blocks * order.merge + inner % order.merge;
    return seen_from(static_cast<std::ptrdiff_t>(y * order.size - group.first_row),
                     static_cast<std::ptrdiff_t>(x * order.size),
                     group.sources[group.count == 1 ? 0 : frame], window);
  };
  const std::size_t end = row_end / order.size * width;
  // Asks for the pixels under a patch in the next row of blocks: its rows stand apart in memory,
  // where the hardware doesn't foresee them.
  const auto prefetch_below = [&](std::size_t patch) {
    if (patch + order.merge * width >= end || group.sources->window != nullptr) return;
    for (std::size_t i = 0; i < group.count; ++i) {
      const ImageSource source = source_of(patch + order.merge * width, i, windows[0]);
      for (std::size_t y = 0; y < order.size; ++y) {
        prefetch_line(source.data + static_cast<std::ptrdiff_t>(y) * source.row_stride);
      }
    }
  };
  const std::size_t begin = row_begin / order.size * width;
  Stage stage(static_cast<std::byte*>(group.out) + begin * patch_bytes);
  for (std::size_t first = begin, count; first < end; first += count) {
    count = std::min(most, end - first);
    std::byte* const out = static_cast<std::byte*>(group.out) + first * patch_bytes;
    if (group.streaming) {
      for (std::size_t patch = first; patch < first + count; ++patch) prefetch_below(patch);
    }
    std::byte* const to = is_staged ? stage.next() : out;
    if (is_repeated && patch_bytes <= Stage::kBytes) {
      // Normalized once, and copied from the cache.
      const std::size_t piece = is_chw ? plane_bytes : frame_bytes;
      patches.count = count;
      patches.frames = 1;
      for (std::size_t i = 0; i < count; ++i) sources[i] = source_of(first + i, 0, windows[i]);
      patches.sources = sources;
      patches.out = once;
      normalize(patches, 0, count * order.size);
      for (std::size_t i = 0; i < count * patch_bytes / piece; ++i) {
        std::memcpy(to + i * piece, once + i / order.frames * piece, piece);
      }
      if (is_staged) stage.write(count * patch_bytes);
      continue;
    }
    if (is_whole) {
      patches.count = count * order.frames;
      for (std::size_t i = 0; i < patches.count; ++i) {
        sources[i] = source_of(first + i / order.frames, i % order.frames, windows[i]);
      }
      patches.sources = sources;
      patches.out = to;
      normalize(patches, 0, patches.count * order.size);
      if (is_staged) stage.write(count * patch_bytes);
      continue;
    }
    // The planes of a frame lie among those of the others.
    patches.count = 1;
    for (std::size_t i = 0; i < count * order.slots; ++i) {
      const std::size_t patch = i / order.slots, slot = order.slot + i % order.slots;
      sources[0] = source_of(first + patch, i % order.slots, windows[0]);
      patches.sources = sources;
      patches.out = out + patch * patch_bytes + slot * (is_chw ? plane_bytes : frame_bytes);
      normalize(patches, 0, order.size);
    }
  }
  if (is_staged) stage.finish();
  if (group.streaming) stores_done();
}

}  // namespace pinfeed::kernels
