// Boxes and points moved to where a batch of images shows what was there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/geometry.h"

namespace pinfeed::kernels {

// The four numbers of a box: corners x1, y1, x2, y2; the corner x1, y1 with width and height; or
// the centre with width and height.
enum class BoxFormat : std::uint8_t { xyxy, xywh, cxcywh };

// Makes corners of `count` boxes, in place. Returns whether all their numbers are finite.
bool to_corners(BoxFormat format, double* boxes, std::size_t count);

// Which boxes remain: those that have these sides and this area when they have been clipped.
struct BoxRules {
  double min_size;
  double min_area;
};

// Moves the boxes of one image, given as corners, and clips them to what is seen of it. Those that
// don't remain, or didn't before, get a 0 in objects.remain.
void move_boxes(const View& view, const BoxRules& rules, double* corners, std::uint8_t* remain,
                std::size_t count);

// Writes those boxes of one image that remain as float32 numbers of a format, divided by the size
// of what they are fractions of: 1 x 1 for pixels. Returns where the next image's go.
float* write_boxes(BoxFormat format, const double* corners, const std::uint8_t* remain,
                   std::size_t count, double height, double width, float* out);

// Writes `count` points of `numbers` numbers, x and y first. The third, which says whether a point
// is visible, becomes 0 outside of what is seen; a point whose third number is 0 stays as it is.
void move_points(const View& view, const double* points, std::size_t count, std::size_t numbers,
                 float* out);

}  // namespace pinfeed::kernels
