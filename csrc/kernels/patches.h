// Images cut into square patches, one behind the other, as vision transformers take them.
//
// A patch has the pixels of a square of `frames` frames of a clip, normalized as image.h defines
// it: in ImageLayout::chw as (channel, frame, row, column), in hwc as (frame, row, column,
// channel). Patches come row by row; or, merged, in blocks of merge x merge, the blocks row by row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/image.h"

namespace pinfeed::kernels {

// Which size an image gets before it is cut into patches.
struct PatchSizes {
  std::int64_t patch = 0;     // rows and columns of a patch
  std::int64_t multiple = 1;  // the patches on each side are a multiple of this
  std::int64_t min_side = 1;  // of the images: smaller ones are refused
  // With min_pixels to max_pixels: the nearest multiple, or the same ratio with fewer or more.
  double min_pixels = 0;
  double max_pixels = 0;         // 0: no such rule
  std::int64_t max_patches = 0;  // the largest of the same ratio with so many at most; 0: no rule
};

enum class PatchMisfit : std::uint8_t {
  none,
  too_small,    // a side below min_side
  too_long,     // one side more than 200 times the other, with min_pixels to max_pixels
  indivisible,  // no rule, and a side that is no multiple
};

// The height and width in pixels; as double arithmetic has them in transformers' smart_resize and
// get_image_size_for_max_num_patches.
PatchMisfit find_patched_size(const PatchSizes& sizes, std::int64_t height, std::int64_t width,
                              std::array<std::int64_t, 2>& patched);

// How a group of frames, as many as a patch has, becomes patches.
struct PatchOrder {
  static constexpr std::size_t kMostFrames = 32;

  std::size_t size;
  std::size_t merge;  // divides the patches of each side
  std::size_t frames;
  std::size_t slot = 0;  // the first frame of the patches that is written
  std::size_t slots;     // and how many are

  // Rows of an image that fill whole blocks.
  std::size_t rows() const { return size * merge; }
};

// Writes rows [row_begin, row_end) of a group's place, multiples of order.rows(), as patches, of
// which the first begins at `group.out`. The group has a source for each slot, or one for all; its
// height and width are multiples, too. `normalize` is an instruction set's.
void write_patches(NormalizeImages normalize, const PatchOrder& order, const ImageBatch& group,
                   std::size_t row_begin, std::size_t row_end);

}  // namespace pinfeed::kernels
