#include "kernels/targets.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pinfeed::kernels {

namespace {

bool are_finite(const double* numbers, std::size_t count) {
  constexpr std::uint64_t kExponent = 0x7ff0'0000'0000'0000, kOne = 0x0010'0000'0000'0000;
  std::uint64_t carried = 0;  // highest bit: all bits of some exponent are set
  for (std::size_t i = 0; i < count; ++i) {
    carried |= (std::bit_cast<std::uint64_t>(numbers[i]) & kExponent) + kOne;
  }
  return carried >> 63 == 0;
}

// The crop before a resize. It clips boxes even if the crop after the resize shows a larger canvas.
struct Cropped {
  explicit Cropped(const Transform& transform)
      : any(transform.resized && transform.source.clips_boxes),
        left(static_cast<double>(transform.source.left)),
        top(static_cast<double>(transform.source.top)),
        right(static_cast<double>(transform.source.left + transform.source.width)),
        bottom(static_cast<double>(transform.source.top + transform.source.height)) {}

  bool any;
  double left, top, right, bottom;
};

}  // namespace

bool to_corners(BoxFormat format, double* boxes, std::size_t count) {
  if (!are_finite(boxes, 4 * count)) return false;
  if (format == BoxFormat::xyxy) return true;
  for (double* box = boxes; box < boxes + 4 * count; box += 4) {
    if (format == BoxFormat::cxcywh) {
      box[0] -= box[2] / 2;
      box[1] -= box[3] / 2;
    }
    box[2] += box[0];
    box[3] += box[1];
  }
  return true;
}

void move_boxes(const Transform& transform, const BoxRules& rules, double* corners,
                std::uint8_t* remain, std::size_t count) {
  const CoordinateMap moved = coordinate_map(transform);
  const auto crop_width = static_cast<double>(transform.visible().width);
  const auto crop_height = static_cast<double>(transform.visible().height);
  const auto move = [](const AxisMap& axis, double size, double& low, double& high) {
    low = axis(low);
    high = axis(high);
    if (axis.mirrored >= 0) std::swap(low, high);
    low = std::min(std::max(low, 0.0), size);  // branch-free, unlike std::clamp
    high = std::min(std::max(high, 0.0), size);
  };
  const Cropped cropped(transform);
  for (std::size_t i = 0; i < count; ++i, corners += 4) {
    if (cropped.any) {
      for (int k : {0, 2}) corners[k] = std::clamp(corners[k], cropped.left, cropped.right);
      for (int k : {1, 3}) corners[k] = std::clamp(corners[k], cropped.top, cropped.bottom);
    }
    move(moved.x, crop_width, corners[0], corners[2]);
    move(moved.y, crop_height, corners[1], corners[3]);
    const double width = corners[2] - corners[0], height = corners[3] - corners[1];
    remain[i] &= static_cast<int>(width >= rules.min_size) &
                 static_cast<int>(height >= rules.min_size) &
                 static_cast<int>(width * height >= rules.min_area);
  }
}

float* write_boxes(BoxFormat format, const double* corners, const std::uint8_t* remain,
                   std::size_t count, double height, double width, float* out) {
  const bool in_pixels = height == 1 && width == 1;
  for (std::size_t i = 0; i < count; ++i, corners += 4) {
    if (!remain[i]) continue;
    double box[4] = {corners[0], corners[1], corners[2], corners[3]};
    if (!in_pixels) {
      for (int k = 0; k < 4; ++k) box[k] /= k % 2 == 0 ? width : height;
    }
    if (format != BoxFormat::xyxy) {
      box[2] -= box[0];
      box[3] -= box[1];
    }
    if (format == BoxFormat::cxcywh) {
      box[0] += box[2] / 2;
      box[1] += box[3] / 2;
    }
    for (int k = 0; k < 4; ++k) *out++ = static_cast<float>(box[k]);
  }
  return out;
}

void move_points(const Transform& transform, const double* points, std::size_t count,
                 std::size_t numbers, float* out) {
  const CoordinateMap moved = coordinate_map(transform);
  const auto width = static_cast<double>(transform.visible().width);
  const auto height = static_cast<double>(transform.visible().height);
  const Cropped cropped(transform);
  for (std::size_t i = 0; i < count; ++i, points += numbers, out += numbers) {
    double x = moved.x(points[0]), y = moved.y(points[1]);
    if (numbers == 3) {
      const bool is_there = points[2] != 0;
      const bool is_cut = cropped.any && (points[0] < cropped.left || points[0] > cropped.right ||
                                          points[1] < cropped.top || points[1] > cropped.bottom);
      const bool is_inside = !is_cut && x >= 0 && x <= width && y >= 0 && y <= height;
      if (!is_there) x = points[0], y = points[1];
      out[2] = is_there && is_inside ? static_cast<float>(points[2]) : 0.0F;
    }
    out[0] = static_cast<float>(x);
    out[1] = static_cast<float>(y);
  }
}

}  // namespace pinfeed::kernels
