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

// The rules for the size to which an image is resized before it is cut into patches.
struct PatchSizes {
  std::int64_t patch = 0;     // rows and columns of a patch
  std::int64_t multiple = 1;  // divides the number of patches of each side
  std::int64_t min_side = 1;  // of images; a smaller side is a misfit
  // The range of pixels: the nearest multiple, or the same ratio with fewer or more pixels.
  double min_pixels = 0;
  double max_pixels = 0;  // 0: no range
  // the largest size of the same ratio with at most these patches; 0: no maximum
  std::int64_t max_patches = 0;
};

enum class PatchMisfit : std::uint8_t {
  none,
  too_small,    // a side below min_side
  too_long,     // one side more than 200 times the other, with min_pixels to max_pixels
  indivisible,  // no rule, and a side that is not a multiple
};

// The height and width in pixels, in the same double arithmetic as transformers' smart_resize and
// get_image_size_for_max_num_patches.
PatchMisfit find_patched_size(const PatchSizes& sizes, std::int64_t height, std::int64_t width,
                              std::array<std::int64_t, 2>& patched);

// The conversion of a group of frames, as many as one patch holds, to patches.
struct PatchOrder {
  static constexpr std::size_t kMostFrames = 32;

  std::size_t size;
  std::size_t merge;  // divides the patches of each side
  std::size_t frames;
  std::size_t slot = 0;  // the first frame of the patches to write
  std::size_t slots;     // the number of frames to write

  // The rows of an image in one row of blocks.
  std::size_t rows() const { return size * merge; }
};

// Writes rows [row_begin, row_end) of a group's slot, multiples of order.rows(), as patches that
// begin at `group.out`. The group has one source per frame slot, or one for all; its height and
// width are multiples of a block. `normalize` belongs to an instruction set.
void write_patches(NormalizeImages normalize, const PatchOrder& order, const ImageBatch& group,
                   std::size_t row_begin, std::size_t row_end);

}  // namespace pinfeed::kernels
