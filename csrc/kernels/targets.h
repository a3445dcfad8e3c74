// Transforms boxes and points together with the images of a batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/geometry.h"

namespace pinfeed::kernels {

// The four numbers of a box: corners x1, y1, x2, y2; the corner x1, y1, the width and the height;
// or the center, the width and the height.
enum class BoxFormat : std::uint8_t { xyxy, xywh, cxcywh };

// Converts `count` boxes to corners, in place. Returns whether all their numbers are finite.
bool to_corners(BoxFormat format, double* boxes, std::size_t count);

// The minimum sides and area that a box must have after clipping to remain.
struct BoxRules {
  double min_size;
  double min_area;
};

// Moves the boxes of one image, given as corners, and clips them to its crop. Boxes that are
// removed get a 0 in objects.remain.
void move_boxes(const Transform& transform, const BoxRules& rules, double* corners,
                std::uint8_t* remain, std::size_t count);

// Writes the remaining boxes of one image as float32 numbers of a format, divided by the size that
// fractions refer to: 1 x 1 for pixels. Returns the address for the next image's boxes.
float* write_boxes(BoxFormat format, const double* corners, const std::uint8_t* remain,
                   std::size_t count, double height, double width, float* out);

// Writes `count` points of `numbers` numbers, x and y first. The third number, the visibility,
// becomes 0 outside the crop; points whose third number is 0 are unchanged.
void move_points(const Transform& transform, const double* points, std::size_t count,
                 std::size_t numbers, float* out);

}  // namespace pinfeed::kernels
