#include "kernels/geometry.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

using Kind = GeometryStep::Kind;

// Restricts one axis of a window to the `size` pixels from `first` on.
void take(std::int64_t& begin, std::int64_t& extent, bool flipped, std::int64_t first,
          std::int64_t size) {
  begin += flipped ? extent - first - size : first;
  extent = size;
}

void crop(Window& window, std::int64_t top, std::int64_t left, std::int64_t height,
          std::int64_t width) {
  window.cropped |= top != 0 || left != 0 || height != window.height || width != window.width;
  take(window.top, window.height, window.flipped_rows, top, height);
  take(window.left, window.width, window.flipped_columns, left, width);
}

// The first of `size` pixels at the center of `extent`, rounded like torchvision: to even in a
// larger image, or down; in a smaller image down, for the padding in front.
std::int64_t middle(std::int64_t extent, std::int64_t size, bool rounds_down) {
  const std::int64_t spare = extent - size;
  if (spare < 0) return -(-spare / 2);
  return spare / 2 + (spare % 4 == 3 && !rounds_down ? 1 : 0);
}

// Why an axis of an image can't supply `count` pixels beyond its edges.
Misfit beyond(std::int64_t extent, Border border, std::int64_t count) {
  if (border == Border::constant || count <= 0) return Misfit::none;
  if (extent == 0) return Misfit::no_pixels;
  const bool mirrors_too_many = border == Border::reflect && count >= extent;
  return mirrors_too_many ? Misfit::too_few_to_mirror : Misfit::none;
}

// One axis of the positions at which a random crop may begin: `before` pixels of padding are in
// front.
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
    return spare < 0 ? Misfit::too_small : beyond(extent, border, std::max(before, after));
  }
  std::int64_t first(std::uint64_t bits) const { return one_of(spare + 1, bits) - before; }
};

// The random numbers of one step and one sample.
class Draws {
 public:
  Draws(std::uint64_t key, std::int64_t sample, std::size_t step)
      : random_(key), sample_(static_cast<std::uint64_t>(sample)), step_(step) {}

  // The numbers of draw `draw`, 0 to 65,535. A Compose has fewer than 65,536 steps.
  std::array<std::uint64_t, 2> operator()(std::uint64_t draw = 0) const {
    return random_(sample_, draw << 16 | step_);
  }

 private:
  Philox random_;
  std::uint64_t sample_;
  std::uint64_t step_;
};

// The height and width of a crop of a window.
std::array<std::int64_t, 2> crop_size(const GeometryStep& step, const Window& window) {
  const auto side = [](std::int64_t given, double share, std::int64_t extent) {
    if (given > 0 || extent == 0) return given;
    return std::max<std::int64_t>(static_cast<std::int64_t>(share * static_cast<double>(extent)),
                                  1);
  };
  return {side(step.height, step.share[0], window.height),
          side(step.width, step.share[1], window.width)};
}

Misfit crop_at_random(const GeometryStep& step, Border border, bool may_be_small, const Draws& draw,
                      Window& window) {
  auto [height, width] = crop_size(step, window);
  if (may_be_small && !step.pad_if_needed) {
    height = std::min(height, window.height + step.above + step.below);
    width = std::min(width, window.width + step.left + step.right);
  }
  const Room rows(window.height, height, step.above, step.below, step.pad_if_needed);
  const Room columns(window.width, width, step.left, step.right, step.pad_if_needed);
  for (const Misfit misfit :
       {rows.misfit(window.height, border), columns.misfit(window.width, border)}) {
    if (misfit != Misfit::none) return misfit;
  }
  const auto [first, second] = draw();
  crop(window, rows.first(first), columns.first(second), height, width);
  return Misfit::none;
}

// Puts the whole window at a random position of a canvas, drawn like torchvision's.
void zoom_out(const GeometryStep& step, const Draws& draw, Window& window) {
  const auto [chance, factor_bits] = draw();
  if (uniform(chance) >= step.probability) return;
  const auto [left_bits, top_bits] = draw(1);
  const double factor = between(step.range, factor_bits);
  const auto side = [&](std::int64_t extent) {
    return static_cast<std::int64_t>(static_cast<double>(extent) * factor);
  };
  const std::int64_t height = side(window.height), width = side(window.width);
  crop(window, -one_of(height - window.height, top_bits), -one_of(width - window.width, left_bits),
       height, width);
  window.cropped = true;  // also by the image's own size
}

// A rectangle with continuous coordinates.
struct Box {
  double left, top, right, bottom;

  double area() const { return (right - left) * (bottom - top); }
  bool has_centre_of(const Box& other) const {
    const double x = 0.5 * (other.left + other.right), y = 0.5 * (other.top + other.bottom);
    return left < x && x < right && top < y && y < bottom;
  }
  // Intersection over union of two rectangles.
  double overlap(const Box& other) const {
    const double width = std::min(right, other.right) - std::max(left, other.left);
    const double height = std::min(bottom, other.bottom) - std::max(top, other.top);
    const double shared = std::max(width, 0.0) * std::max(height, 0.0);
    return shared / (area() + other.area() - shared);
  }
};

// The box of an object, in pixels of a window of its image.
Box box_in(const Window& window, const double* corners) {
  const auto axis = [&](std::int64_t begin, std::int64_t extent, bool flipped, double from,
                        double to) -> std::array<double, 2> {
    const auto first = static_cast<double>(begin), size = static_cast<double>(extent);
    if (window.cropped) {
      from = std::clamp(from, first, first + size);
      to = std::clamp(to, first, first + size);
    }
    if (flipped) return {size - (to - first), size - (from - first)};
    return {from - first, to - first};
  };
  const auto [left, right] =
      axis(window.left, window.width, window.flipped_columns, corners[0], corners[2]);
  const auto [top, bottom] =
      axis(window.top, window.height, window.flipped_rows, corners[1], corners[3]);
  return {left, top, right, bottom};
}

// Drawn like torchvision's: a minimum overlap, then crops until one contains the center of a box
// and overlaps it enough; then another minimum overlap. torchvision's loop never ends if no overlap
// is 1 and no crop will do; here the window stays whole after the last draw.
void crop_around_boxes(const GeometryStep& step, const Draws& draw, const Objects& objects,
                       Window& window) {
  const auto part = [](std::int64_t extent, double factor) {
    return static_cast<std::int64_t>(static_cast<double>(extent) * factor);
  };
  const auto trials = static_cast<std::uint64_t>(step.trials), round = 1 + 2 * trials;
  for (std::uint64_t first = 0; first + round <= 1u << 16; first += round) {
    const double least = step.overlaps[one_of(std::ssize(step.overlaps), draw(first)[0])];
    if (least >= 1) return;
    for (std::uint64_t trial = 0; trial < trials; ++trial) {
      const auto [width_bits, height_bits] = draw(first + 1 + 2 * trial);
      const std::int64_t width = part(window.width, between(step.range, width_bits));
      const std::int64_t height = part(window.height, between(step.range, height_bits));
      const double ratio = static_cast<double>(width) / static_cast<double>(height);
      if (width == 0 || height == 0 || ratio < step.ratio[0] || ratio > step.ratio[1]) continue;
      const auto [left_bits, top_bits] = draw(first + 2 + 2 * trial);
      const std::int64_t left = one_of(window.width - width, left_bits);
      const std::int64_t top = one_of(window.height - height, top_bits);
      const Box seen{static_cast<double>(left), static_cast<double>(top),
                     static_cast<double>(left + width), static_cast<double>(top + height)};
      double most = -1;
      for (std::size_t i = 0; i < objects.count; ++i) {
        const Box box = box_in(window, objects.corners + 4 * i);
        if (seen.has_centre_of(box)) most = std::max(most, box.overlap(seen));
      }
      if (most < 0 || most < least) continue;
      for (std::size_t i = 0; i < objects.count; ++i) {
        objects.remain[i] &= seen.has_centre_of(box_in(window, objects.corners + 4 * i));
      }
      return crop(window, top, left, height, width);
    }
  }
}

// A crop of a random area and ratio, drawn like torchvision's: up to ten tries to find one that
// fits, else the largest center crop of an allowed ratio.
void crop_some_area(const GeometryStep& step, const Draws& draw, Window& window) {
  const auto whole = [](double number) {
    return static_cast<std::int64_t>(std::nearbyint(number));
  };
  const auto columns = static_cast<double>(window.width), rows = static_cast<double>(window.height);
  const std::array<double, 2> logarithms{std::log(step.ratio[0]), std::log(step.ratio[1])};
  for (std::uint64_t number = 0; number < 10; ++number) {
    const auto [area_bits, ratio_bits] = draw(2 * number);
    const double area = rows * columns * between(step.range, area_bits);
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

// The sides of an image whose longer edge would exceed `most`, rounded step by step like
// transformers' get_size_with_aspect_ratio.
std::array<std::int64_t, 2> sides_within(std::int64_t shorter, std::int64_t longer,
                                         std::int64_t most) {
  const auto from = static_cast<double>(shorter), to = static_cast<double>(longer);
  const double exact = static_cast<double>(most) * from / to;
  const auto rounded = static_cast<std::int64_t>(std::nearbyint(exact));
  if (rounded == shorter) return {shorter, longer};
  return {rounded, static_cast<std::int64_t>(exact * to / from)};
}

// Computed like timm's ResizeKeepRatio, in the same order.
std::array<std::int64_t, 2> size_in_proportion(const GeometryStep& step, const Draws& draw,
                                               double rows, double columns) {
  const double down = rows / static_cast<double>(step.height);
  const double across = columns / static_cast<double>(step.width);
  const double divisor =
      std::max(down, across) * step.longest + std::min(down, across) * (1 - step.longest);
  double taller = 1, wider = 1;
  const auto [scale_chance, scale_bits] = draw();
  if (uniform(scale_chance) < step.probability) {
    taller = between(step.range, scale_bits);
    if (step.by_area) taller = 1 / std::sqrt(taller);
    wider = taller;
  }
  const auto [ratio_chance, ratio_bits] = draw(1);
  if (uniform(ratio_chance) < step.ratio_probability) {
    const std::array<double, 2> logarithms{std::log(step.ratio[0]), std::log(step.ratio[1])};
    const double aspect = std::sqrt(std::exp(between(logarithms, ratio_bits)));
    taller /= aspect;
    wider *= aspect;
  }
  const auto whole = [](double side) {
    return static_cast<std::int64_t>(std::nearbyint(std::min(side, 0x1p60)));
  };
  return {whole(rows * taller / divisor), whole(columns * wider / divisor)};
}

// The size to which an image of height x width is resized.
std::array<std::int64_t, 2> resized_size(const GeometryStep& step, const Draws& draw,
                                         std::int64_t height, std::int64_t width) {
  const auto rows = static_cast<double>(height), columns = static_cast<double>(width);
  const auto times = [&](double factor) -> std::array<std::int64_t, 2> {
    return {static_cast<std::int64_t>(rows * factor), static_cast<std::int64_t>(columns * factor)};
  };
  const auto [shorter, longer] = std::minmax(height, width);
  std::int64_t new_shorter = step.height, most = step.width;
  switch (step.kind) {
    case Kind::resize_to_one_of: {
      const std::int64_t size = step.sizes[one_of(std::ssize(step.sizes), draw()[0])];
      double factor = static_cast<double>(size) / static_cast<double>(shorter);
      if (most > 0) {
        factor = std::min(factor, static_cast<double>(most) / static_cast<double>(longer));
      }
      return times(factor);
    }
    case Kind::scale_jitter:
      // torchvision divides the target's width by the image's height, and vice versa.
      return times(std::min(static_cast<double>(step.width) / rows,
                            static_cast<double>(step.height) / columns) *
                   between(step.range, draw()[0]));
    case Kind::keep_ratio:
      return size_in_proportion(step, draw, rows, columns);
    case Kind::resize_between:
      new_shorter += one_of(step.width - step.height, draw()[0]);
      most = 0;
      break;
    case Kind::resize_edges:
      break;
    default:
      return {step.height, step.width};
  }
  std::int64_t new_longer = most;
  if (new_shorter > 0) new_longer = new_shorter * longer / shorter;
  if (step.height == 0) {
    new_shorter = most * shorter / longer;
  } else if (most > 0 && step.as_transformers) {
    const double longest = static_cast<double>(longer) / static_cast<double>(shorter) *
                           static_cast<double>(new_shorter);
    if (longest > static_cast<double>(most)) {
      const auto sides = sides_within(shorter, longer, most);
      new_shorter = sides[0];
      new_longer = sides[1];
    }
  } else if (most > 0 && new_longer > most) {
    new_shorter = most * new_shorter / new_longer;
    new_longer = most;
  }
  if (width <= height) return {new_longer, new_shorter};
  return {new_shorter, new_longer};
}

// Omits a resize to the current size.
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

// Maps one axis. The view shows `begin` to `begin + size` of the pixels, possibly reversed, that
// `source_size` pixels from `source_begin` on were resized to.
std::array<double, 2> region_of_axis(std::int64_t source_begin, std::int64_t source_size,
                                     bool flipped, std::int64_t resized, std::int64_t begin,
                                     std::int64_t size) {
  const std::int64_t first = flipped ? resized - begin - size : begin;
  // Rounded once, so that a whole image maps whole numbers to whole numbers.
  const auto pixels = [&](std::int64_t of_resized) {
    return static_cast<double>(of_resized * source_size) / static_cast<double>(resized);
  };
  return {static_cast<double>(source_begin) + pixels(first), pixels(size)};
}

// The visible window in pixels of the image, possibly outside it: top, left, height, width; then 1
// or 0 for a vertical and for a horizontal flip.
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

}  // namespace

ImageToView image_to_view(const View& view) {
  const auto [top, left, height, width, flipped_rows, flipped_columns] = region(view);
  const auto axis = [](double begin, double extent, bool flipped, std::int64_t size) -> AxisToView {
    const auto seen = static_cast<double>(size);
    return {begin, extent == 0 ? 0 : seen / extent, flipped ? seen : -1};
  };
  return {axis(left, width, flipped_columns != 0, view.seen().width),
          axis(top, height, flipped_rows != 0, view.seen().height)};
}

std::size_t draw_interpolation(std::size_t count, std::uint64_t key, std::int64_t sample) {
  // Geometries number their steps from 0, colors from 2^62.
  const auto [bits, _] = Philox(key)(static_cast<std::uint64_t>(sample), std::uint64_t{1} << 61);
  return below(count, bits);
}

Misfit find_view(const Geometry& geometry, std::int64_t height, std::int64_t width,
                 std::int64_t sample, const Objects& objects, View& view) {
  view = {};
  view.source.height = height;
  view.source.width = width;
  for (std::size_t number = 0; number < geometry.steps.size(); ++number) {
    const GeometryStep& step = geometry.steps[number];
    const Draws draw(geometry.key, sample, number);
    Window& window = view.seen();
    const Border border = view.resized ? geometry.borders.resized : geometry.borders.source;
    switch (step.kind) {
      case Kind::flip_rows:
        window.flipped_rows ^= uniform(draw()[0]) < step.probability;
        break;
      case Kind::flip_columns:
        window.flipped_columns ^= uniform(draw()[0]) < step.probability;
        break;
      case Kind::center_crop: {
        const auto [rows, columns] = crop_size(step, window);
        const std::int64_t top = middle(window.height, rows, step.as_transformers);
        const std::int64_t left = middle(window.width, columns, step.as_transformers);
        // If the image lacks pixels, at least as many are missing behind it as before it.
        for (const Misfit misfit : {beyond(window.height, border, rows - window.height + top),
                                    beyond(window.width, border, columns - window.width + left)}) {
          if (misfit != Misfit::none) return misfit;
        }
        crop(window, top, left, rows, columns);
        break;
      }
      case Kind::pad: {
        const auto [above, left, below, right] =
            std::array{step.above, step.left, step.below, step.right};
        for (const Misfit misfit : {beyond(window.height, border, std::max(above, below)),
                                    beyond(window.width, border, std::max(left, right))}) {
          if (misfit != Misfit::none) return misfit;
        }
        crop(window, -above, -left, window.height + above + below, window.width + left + right);
        break;
      }
      case Kind::random_crop: {
        const Misfit misfit = crop_at_random(step, border, geometry.may_be_small, draw, window);
        if (misfit == Misfit::none) break;
        window.height = step.height;
        window.width = step.width;
        return misfit;
      }
      case Kind::zoom_out:
        zoom_out(step, draw, window);
        break;
      case Kind::iou_crop:
        crop_around_boxes(step, draw, objects, window);
        break;
      case Kind::random_resized_crop:
      case Kind::resize:
      case Kind::resize_edges:
      case Kind::resize_between:
      case Kind::resize_to_one_of:
      case Kind::scale_jitter:
      case Kind::keep_ratio:
        if (window.height == 0 || window.width == 0) return Misfit::empty;
        if (step.kind == Kind::random_resized_crop) crop_some_area(step, draw, window);
        const auto [rows, columns] = resized_size(step, draw, window.height, window.width);
        if (rows == 0 || columns == 0) return Misfit::vanishes;
        view.resize(rows, columns);
        break;
    }
  }
  simplify(view);
  return Misfit::none;
}

}  // namespace pinfeed::kernels
