#include "kernels/targets.h"

#include <algorithm>
#include <utility>

namespace pinfeed::kernels {

void to_corners(BoxFormat format, double* boxes, std::size_t count) {
  if (format == BoxFormat::xyxy) return;
  for (double* box = boxes; box < boxes + 4 * count; box += 4) {
    if (format == BoxFormat::cxcywh) {
      box[0] -= box[2] / 2;
      box[1] -= box[3] / 2;
    }
    box[2] += box[0];
    box[3] += box[1];
  }
}

void move_boxes(const View& view, const BoxRules& rules, double* corners, std::uint8_t* remain,
                std::size_t count) {
  const ImageToView moved = image_to_view(view);
  const auto seen_width = static_cast<double>(view.seen().width);
  const auto seen_height = static_cast<double>(view.seen().height);
  const auto move = [](const AxisToView& axis, double size, double& low, double& high) {
    low = axis(low);
    high = axis(high);
    if (axis.mirrored >= 0) std::swap(low, high);
    low = std::clamp(low, 0.0, size);
    high = std::clamp(high, 0.0, size);
  };
  for (std::size_t i = 0; i < count; ++i, corners += 4) {
    move(moved.x, seen_width, corners[0], corners[2]);
    move(moved.y, seen_height, corners[1], corners[3]);
    const double width = corners[2] - corners[0], height = corners[3] - corners[1];
    // Comparisons that no NaN passes.
    const bool remains =
        width >= rules.min_size && height >= rules.min_size && width * height >= rules.min_area;
    remain[i] &= remains ? 1 : 0;
  }
}

void write_box(BoxFormat format, const double* corners, double height, double width, float* out) {
  double box[4] = {corners[0] / width, corners[1] / height, corners[2] / width,
                   corners[3] / height};
  if (format != BoxFormat::xyxy) {
    box[2] -= box[0];
    box[3] -= box[1];
  }
  if (format == BoxFormat::cxcywh) {
    box[0] += box[2] / 2;
    box[1] += box[3] / 2;
  }
  for (int k = 0; k < 4; ++k) out[k] = static_cast<float>(box[k]);
}

void move_points(const View& view, const double* points, std::size_t count, std::size_t numbers,
                 float* out) {
  const ImageToView moved = image_to_view(view);
  const auto width = static_cast<double>(view.seen().width);
  const auto height = static_cast<double>(view.seen().height);
  for (std::size_t i = 0; i < count; ++i, points += numbers, out += numbers) {
    double x = moved.x(points[0]), y = moved.y(points[1]);
    if (numbers == 3) {
      const bool is_there = points[2] != 0;
      const bool is_inside = x >= 0 && x <= width && y >= 0 && y <= height;
      if (!is_there) x = points[0], y = points[1];
      out[2] = is_there && is_inside ? static_cast<float>(points[2]) : 0.0F;
    }
    out[0] = static_cast<float>(x);
    out[1] = static_cast<float>(y);
  }
}

}  // namespace pinfeed::kernels
