#include "kernels/geometry.h"

#include <algorithm>
#include <array>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

using Kind = GeometryStep::Kind;

// Moves one axis of a window to the `size` pixels from `first` on.
void take(std::int64_t& begin, std::int64_t& extent, bool flipped, std::int64_t first,
          std::int64_t size) {
  begin += flipped ? extent - first - size : first;
  extent = size;
}

// The first of `size` pixels in the middle of `extent`, as torchvision rounds: to even in a larger
// image; in a smaller one down, for what stands before it.
std::int64_t middle(std::int64_t extent, std::int64_t size) {
  const std::int64_t spare = extent - size;
  if (spare < 0) return -(-spare / 2);
  return spare / 2 + (spare % 4 == 3 ? 1 : 0);
}

// One axis of the place where a random crop may begin: `before` pixels are added in front.
struct Room {
  std::int64_t before;
  std::int64_t after;
  std::int64_t spare;

  Room(std::int64_t extent, std::int64_t size, std::int64_t front, std::int64_t back,
       bool pad_if_needed)
      : before(front), after(back), spare(extent + front + back - size) {
    if (spare < 0 && pad_if_needed) {
      before -= spare;
      after -= spare;
      spare = -spare;
    }
  }
  Misfit misfit(std::int64_t extent, Border border) const {
    if (spare < 0) return Misfit::too_small;
    if (border == Border::constant || (before == 0 && after == 0)) return Misfit::none;
    if (extent == 0) return Misfit::no_pixels;
    const bool mirrors_too_many = border == Border::reflect && std::max(before, after) >= extent;
    return mirrors_too_many ? Misfit::too_few_to_mirror : Misfit::none;
  }
  std::int64_t first(std::uint64_t bits) const {
    return static_cast<std::int64_t>(uniform(bits) * static_cast<double>(spare + 1)) - before;
  }
};

}  // namespace

Misfit find_window(std::span<const GeometryStep> steps, Border border, std::int64_t height,
                   std::int64_t width, std::uint64_t key, std::int64_t sample, Window& window) {
  const Philox random(key);
  window = {0, 0, height, width, false, false};
  for (std::size_t number = 0; number < steps.size(); ++number) {
    const GeometryStep& step = steps[number];
    std::array<std::uint64_t, 2> bits{};
    if (step.kind != Kind::center_crop) bits = random(static_cast<std::uint64_t>(sample), number);
    std::int64_t top = 0, left = 0;
    switch (step.kind) {
      case Kind::flip_rows:
        window.flipped_rows ^= uniform(bits[0]) < step.probability;
        continue;
      case Kind::flip_columns:
        window.flipped_columns ^= uniform(bits[0]) < step.probability;
        continue;
      case Kind::center_crop:
        top = middle(window.height, step.height);
        left = middle(window.width, step.width);
        break;
      case Kind::random_crop: {
        const Room rows(window.height, step.height, step.above, step.below, step.pad_if_needed);
        const Room columns(window.width, step.width, step.left, step.right, step.pad_if_needed);
        for (const Misfit misfit :
             {rows.misfit(window.height, border), columns.misfit(window.width, border)}) {
          if (misfit != Misfit::none) return misfit;
        }
        top = rows.first(bits[0]);
        left = columns.first(bits[1]);
        break;
      }
    }
    take(window.top, window.height, window.flipped_rows, top, step.height);
    take(window.left, window.width, window.flipped_columns, left, step.width);
  }
  return Misfit::none;
}

}  // namespace pinfeed::kernels
