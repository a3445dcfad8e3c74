// Resizes images, then normalizes and permutes a crop of each, in one pass.
//
// A resized byte equals, bit for bit, the result of torch.nn.functional.interpolate(uint8,
// antialias=True) on a CPU: first along each row, then along each column, each time
//
//   out[i] = clamp((sum over t of in[first[i] + t] * weight[i][t] + 2^(precision - 1)) >>
//   precision)
//
// to 0..255. In float32, in the same order,
//
//   out[i] = 0 + in[first[i]] * weight[i][0] + in[first[i] + 1] * weight[i][1] + ...
//
// from left to right, without weights of 0; each product and each sum is rounded once, not fused.
// `nearest` and `nearest_exact` copy pixels of any type, like torch's modes of these names. Every
// instruction set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/color.h"
#include "kernels/image.h"
#include "kernels/image_runs.h"
#include "kernels/resize_taps.h"

namespace pinfeed::kernels {

struct PatchOrder;

// The resize of one image before it is normalized.
struct ImageResize {
  ImageSize source;   // the image that ImageSource describes
  ImageSize resized;  // neither has a side of 0
  // The slot shows a crop of the resized image, possibly flipped, that begins here. It may extend
  // beyond the resized image, like an ImageCrop.
  std::ptrdiff_t top;
  std::ptrdiff_t left;
  bool flipped_rows;
  bool flipped_columns;
  Border border;
  const std::uint8_t* fill;  // a pixel of the resized type
  // Overrides the batch's interpolation with another antialiased one.
  std::optional<Interpolation> interpolation = std::nullopt;
};

// A batch in which some images are resized, one entry per image; then colors change. Both may be
// null.
struct ResizedBatch {
  const ImageBatch& images;
  const std::optional<ImageResize>* resizes;
  Interpolation interpolation;
  const Colors* colors = nullptr;
  bool in_floats = false;               // allowed for interpolated bytes, required for other types
  const PatchOrder* patches = nullptr;  // null: images are written row by row

  // The types of the source and of interpolated values.
  ScalarType resized_type() const { return in_floats ? ScalarType::float32 : images.in_type; }
};

// The sums for one type of values.
struct ResizeSums {
  // Resizes one row of pixels of `channels` adjacent values to taps.outputs() pixels. Reads up to
  // kRunSlack bytes beyond the taps' pixels, and writes up to kRunSlack beyond the output's.
  void (*along_row)(const Taps& taps, const std::uint8_t* row, std::size_t channels,
                    std::uint8_t* out);

  // One row of output: the weighted sum of 2 * taps.pairs() rows of `bytes` bytes each. Reads and
  // writes up to kRunSlack bytes more.
  void (*along_columns)(const Taps& taps, std::size_t output, const std::uint8_t* const* rows,
                        std::size_t bytes, std::uint8_t* out);
};

// The primitives of one instruction set.
struct ResizeRuns {
  const ImageRuns* images;  // null: plain loops
  const CastTable* casts;
  const ResizeSums* bytes;
  const ResizeSums* floats;

  // Maps `count` bytes through the table, and up to kRunSlack more.
  void (*recolor)(const ColorTable& table, std::uint8_t* values, std::size_t count);

  // As color.h defines them. The first reads and writes up to kRunSlack bytes more.
  void (*saturate)(const Saturation& saturation, std::uint8_t* pixels, std::size_t count);
  std::uint64_t (*gray_sum)(const std::uint8_t* pixels, std::size_t count);

  // Images that are not resized.
  void normalize(const ImageBatch& batch, std::size_t row_begin, std::size_t row_end) const {
    if (images == nullptr) return normalize_images_scalar(batch, row_begin, row_end);
    walk_images(*images, batch, row_begin, row_end);
  }
};

inline constexpr std::size_t kRunSlack = 128;

extern const ResizeSums kByteSums, kFloatSums;  // plain loops
extern const ResizeRuns kResizeScalar;
extern const ResizeRuns kResizeAvx2;
extern const ResizeRuns kResizeAvx512;
extern const ResizeRuns kResizeNeon;

// Writes rows [row_begin, row_end) of the batch, counted as for ImageBatch. Disjoint ranges may
// run at the same time; ranges of whole images are the fastest. Throws std::bad_alloc.
void resize_images(const ResizeRuns& runs, const ResizedBatch& batch, std::size_t row_begin,
                   std::size_t row_end);

}  // namespace pinfeed::kernels
