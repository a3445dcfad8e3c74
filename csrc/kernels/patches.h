// Cuts images into square patches for vision transformers.
//
// A patch holds a square of `frames` frames of a clip, normalized as image.h defines: in
// ImageLayout::chw as (channel, frame, row, column), in hwc as (frame, row, column, channel).
// Patches are in row order; if merged, blocks of merge x merge patches are in row order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/image.h"

namespace pinfeed::kernels {

struct ResizeRuns;

// The size to which an image is resized before it is cut into patches.
struct PatchSizes {
  std::int64_t patch = 0;     // rows and columns of a patch
  std::int64_t multiple = 1;  // of patches: divides their number along each side
  std::int64_t min_side = 1;  // minimum side of an image
  // If max_pixels is not 0, sides are rounded to the nearest multiple, and an image with fewer or
  // more pixels is scaled.
  double min_pixels = 0;
  double max_pixels = 0;
  // Else, if this is not 0, the image gets the largest size of its aspect ratio with at most this
  // many patches.
  std::int64_t max_patches = 0;
};

enum class PatchMisfit : std::uint8_t {
  none,
  too_small,    // a side below min_side
  too_long,     // one side over 200 times the other, if max_pixels is set
  indivisible,  // a side is not a multiple, and no option allows a resize
};

// The height and width in pixels, in the same double arithmetic as transformers' smart_resize and
// get_image_size_for_max_num_patches.
PatchMisfit find_patched_size(const PatchSizes& sizes, std::int64_t height, std::int64_t width,
                              std::array<std::int64_t, 2>& patched);

// Converts a group of frames, the frames of one patch, to patches.
struct PatchOrder {
  static constexpr std::size_t kMaxFrames = 32;

  std::size_t size;
  std::size_t merge;  // patches per side of a block
  std::size_t frames;
  std::size_t slot = 0;  // the first frame in each patch to write
  std::size_t slots;     // the number of frames to write

  // The rows of an image in one row of blocks.
  std::size_t rows() const { return size * merge; }
};

// Writes rows [row_begin, row_end) of a group's slot, multiples of order.rows(), as patches that
// begin at `group.out`. The group has one source per frame slot, or one for all; its height and
// width are multiples of a block.
void write_patches(const ResizeRuns& runs, const PatchOrder& order, const ImageBatch& group,
                   std::size_t row_begin, std::size_t row_end);

}  // namespace pinfeed::kernels
