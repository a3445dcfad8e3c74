#include "kernels/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>

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

void crop(Window& window, std::int64_t top, std::int64_t left, std::int64_t height,
          std::int64_t width) {
  take(window.top, window.height, window.flipped_rows, top, height);
  take(window.left, window.width, window.flipped_columns, left, width);
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

// The numbers that a step draws for a sample.
class Draws {
 public:
  Draws(std::uint64_t key, std::int64_t sample, std::size_t step)
      : random_(key), sample_(static_cast<std::uint64_t>(sample)), step_(step) {}

  // Those of number `draw`, 0 to 65,535. A Compose has fewer than 65,536 steps.
  std::array<std::uint64_t, 2> operator()(std::uint64_t draw = 0) const {
    return random_(sample_, draw << 16 | step_);
  }

 private:
  Philox random_;
  std::uint64_t sample_;
  std::uint64_t step_;
};

Misfit crop_at_random(const GeometryStep& step, Border border, const Draws& draw, Window& window) {
  const Room rows(window.height, step.height, step.above, step.below, step.pad_if_needed);
  const Room columns(window.width, step.width, step.left, step.right, step.pad_if_needed);
  for (const Misfit misfit :
       {rows.misfit(window.height, border), columns.misfit(window.width, border)}) {
    if (misfit != Misfit::none) return misfit;
  }
  const auto [first, second] = draw();
  crop(window, rows.first(first), columns.first(second), step.height, step.width);
  return Misfit::none;
}

// A window of some area and ratio, as torchvision draws it: ten tries to find one that fits, then
// the largest in the middle whose ratio is allowed.
void crop_some_area(const GeometryStep& step, const Draws& draw, Window& window) {
  const auto between = [](const std::array<double, 2>& range, std::uint64_t bits) {
    return range[0] + uniform(bits) * (range[1] - range[0]);
  };
  const auto whole = [](double number) {
    return static_cast<std::int64_t>(std::nearbyint(number));
  };
  const auto columns = static_cast<double>(window.width), rows = static_cast<double>(window.height);
  const std::array<double, 2> logarithms{std::log(step.ratio[0]), std::log(step.ratio[1])};
  for (std::uint64_t number = 0; number < 10; ++number) {
    const auto [area_bits, ratio_bits] = draw(2 * number);
    const double area = rows * columns * between(step.area, area_bits);
    const double ratio = std::exp(between(logarithms, ratio_bits));
    const double width = std::nearbyint(std::sqrt(area * ratio));
    const double height = std::nearbyint(std::sqrt(area / ratio));
    if (width < 1 || width > columns || height < 1 || height > rows) continue;
    const auto [top_bits, left_bits] = draw(2 * number + 1);
    const Room above(window.height, whole(height), 0, 0, false);
    const Room beside(window.width, whole(width), 0, 0, false);
    return crop(window, above.first(top_bits), beside.first(left_bits), whole(height),
                whole(width));
  }
  std::int64_t height = window.height, width = window.width;
  if (columns / rows < step.ratio[0])
    height = std::max<std::int64_t>(whole(columns / step.ratio[0]), 1);
  if (columns / rows > step.ratio[1])
    width = std::max<std::int64_t>(whole(rows * step.ratio[1]), 1);
  crop(window, (window.height - height) / 2, (window.width - width) / 2, height, width);
}

// What an image of height x width is resized to.
std::array<std::int64_t, 2> resized_size(const GeometryStep& step, std::int64_t height,
                                         std::int64_t width) {
  if (step.kind != Kind::resize_edges) return {step.height, step.width};
  const auto [shorter, longer] = std::minmax(height, width);
  std::int64_t new_shorter = step.height, new_longer = step.width;
  if (new_shorter > 0) new_longer = new_shorter * longer / shorter;
  if (step.height == 0) {
    new_shorter = step.width * shorter / longer;
  } else if (step.width > 0 && new_longer > step.width) {
    new_shorter = step.width * new_shorter / new_longer;
    new_longer = step.width;
  }
  if (width <= height) return {new_longer, new_shorter};
  return {new_shorter, new_longer};
}

// Without a resize to the size that it has already.
void simplify(View& view) {
  const Window& kept = view.kept;
  const bool is_inside = kept.top >= 0 && kept.left >= 0 && kept.top + kept.height <= view.height &&
                         kept.left + kept.width <= view.width;
  if (!view.resized || !is_inside || view.height != view.source.height ||
      view.width != view.source.width) {
    return;
  }
  crop(view.source, kept.top, kept.left, kept.height, kept.width);
  view.source.flipped_rows ^= kept.flipped_rows;
  view.source.flipped_columns ^= kept.flipped_columns;
  view.resized = false;
}

// Along one axis, of which the window shows `begin` to `begin + size` of what `source_size` pixels
// from `source_begin` on, maybe mirrored, were resized to.
std::array<double, 2> region_of_axis(std::int64_t source_begin, std::int64_t source_size,
                                     bool flipped, std::int64_t resized, std::int64_t begin,
                                     std::int64_t size) {
  const std::int64_t first = flipped ? resized - begin - size : begin;
  // Rounded once: a whole image has whole numbers.
  const auto pixels = [&](std::int64_t of_resized) {
    return static_cast<double>(of_resized * source_size) / static_cast<double>(resized);
  };
  return {static_cast<double>(source_begin) + pixels(first), pixels(size)};
}

}  // namespace

std::array<double, 6> region(const View& view) {
  const Window& source = view.source;
  if (!view.resized) {
    return {static_cast<double>(source.top),    static_cast<double>(source.left),
            static_cast<double>(source.height), static_cast<double>(source.width),
            source.flipped_rows ? 1.0 : 0.0,    source.flipped_columns ? 1.0 : 0.0};
  }
  const Window& kept = view.kept;
  const auto [top, height] = region_of_axis(source.top, source.height, source.flipped_rows,
                                            view.height, kept.top, kept.height);
  const auto [left, width] = region_of_axis(source.left, source.width, source.flipped_columns,
                                            view.width, kept.left, kept.width);
  return {top,
          left,
          height,
          width,
          source.flipped_rows != kept.flipped_rows ? 1.0 : 0.0,
          source.flipped_columns != kept.flipped_columns ? 1.0 : 0.0};
}

Misfit find_view(std::span<const GeometryStep> steps, Borders borders, std::int64_t height,
                 std::int64_t width, std::uint64_t key, std::int64_t sample, View& view) {
  view = {};
  view.source.height = height;
  view.source.width = width;
  Window* window = &view.source;
  for (std::size_t number = 0; number < steps.size(); ++number) {
    const GeometryStep& step = steps[number];
    const Draws draw(key, sample, number);
    Misfit misfit = Misfit::none;
    switch (step.kind) {
      case Kind::flip_rows:
        window->flipped_rows ^= uniform(draw()[0]) < step.probability;
        break;
      case Kind::flip_columns:
        window->flipped_columns ^= uniform(draw()[0]) < step.probability;
        break;
      case Kind::center_crop:
        crop(*window, middle(window->height, step.height), middle(window->width, step.width),
             step.height, step.width);
        break;
      case Kind::random_crop:
        misfit =
            crop_at_random(step, view.resized ? borders.resized : borders.source, draw, *window);
        break;
      case Kind::random_resized_crop:
      case Kind::resize:
      case Kind::resize_edges:
        if (window->height == 0 || window->width == 0) return Misfit::empty;
        if (step.kind == Kind::random_resized_crop) crop_some_area(step, draw, *window);
        const auto [rows, columns] = resized_size(step, window->height, window->width);
        if (rows == 0 || columns == 0) return Misfit::vanishes;
        view.resized = true;
        view.height = rows;
        view.width = columns;
        view.kept.height = rows;
        view.kept.width = columns;
        window = &view.kept;
        break;
    }
    if (misfit != Misfit::none) {
      window->height = step.height;
      window->width = step.width;
      return misfit;
    }
  }
  simplify(view);
  return Misfit::none;
}

}  // namespace pinfeed::kernels
