#include "kernels/geometry.h"

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

using Kind = GeometryStep::Kind;

// Restricts one axis of a crop to the `size` pixels from `first` on.
void take(std::int64_t& begin, std::int64_t& extent, bool flipped, std::int64_t first,
          std::int64_t size) {
  begin += flipped ? extent - first - size : first;
  extent = size;
}

void crop_to(Crop& crop, std::int64_t top, std::int64_t left, std::int64_t height,
             std::int64_t width) {
  crop.clips_boxes |= top != 0 || left != 0 || height != crop.height || width != crop.width;
  take(crop.top, crop.height, crop.flipped_rows, top, height);
  take(crop.left, crop.width, crop.flipped_columns, left, width);
}

// The offset of `size` pixels at the center of `extent`, rounded to even like torchvision's, or
// down. In a smaller image the padding in front is rounded down.
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

// The positions along one axis at which a random crop may begin, from -before on.
struct CropStarts {
  std::int64_t before;
  std::int64_t after;
  std::int64_t spare;

  CropStarts(std::int64_t extent, std::int64_t size, std::int64_t front, std::int64_t back,
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

// The height and width of a step's crop.
std::array<std::int64_t, 2> crop_size(const GeometryStep& step, const Crop& crop) {
  const auto side = [](std::int64_t given, double share, std::int64_t extent) {
    if (given > 0 || extent == 0) return given;
    return std::max<std::int64_t>(static_cast<std::int64_t>(share * static_cast<double>(extent)),
                                  1);
  };
  return {side(step.height, step.share[0], crop.height),
          side(step.width, step.share[1], crop.width)};
}

Misfit crop_at_random(const GeometryStep& step, Border border, bool may_be_small, const Draws& draw,
                      Crop& crop) {
  auto [height, width] = crop_size(step, crop);
  if (may_be_small && !step.pad_if_needed) {
    height = std::min(height, crop.height + step.above + step.below);
    width = std::min(width, crop.width + step.left + step.right);
  }
  const CropStarts rows(crop.height, height, step.above, step.below, step.pad_if_needed);
  const CropStarts columns(crop.width, width, step.left, step.right, step.pad_if_needed);
  for (const Misfit misfit :
       {rows.misfit(crop.height, border), columns.misfit(crop.width, border)}) {
    if (misfit != Misfit::none) return misfit;
  }
  const auto [first, second] = draw();
  crop_to(crop, rows.first(first), columns.first(second), height, width);
  return Misfit::none;
}

// Puts the image at a random position of a canvas, drawn like torchvision's.
void zoom_out(const GeometryStep& step, const Draws& draw, Crop& crop) {
  const auto [chance, factor_bits] = draw();
  if (uniform(chance) >= step.probability) return;
  const auto [left_bits, top_bits] = draw(1);
  const double factor = between(step.range, factor_bits);
  const auto side = [&](std::int64_t extent) {
    return static_cast<std::int64_t>(static_cast<double>(extent) * factor);
  };
  const std::int64_t height = side(crop.height), width = side(crop.width);
  crop_to(crop, -one_of(height - crop.height, top_bits), -one_of(width - crop.width, left_bits),
          height, width);
  crop.clips_boxes = true;  // even if the canvas has the image's size
}

// A rectangle with continuous coordinates.
struct Box {
  double left, top, right, bottom;

  double area() const { return (right - left) * (bottom - top); }
  bool has_center_of(const Box& other) const {
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

// The box of an object, in pixels of a crop of its image.
Box box_in(const Crop& crop, const double* corners) {
  const auto axis = [&](std::int64_t begin, std::int64_t extent, bool flipped, double from,
                        double to) -> std::array<double, 2> {
    const auto first = static_cast<double>(begin), size = static_cast<double>(extent);
    if (crop.clips_boxes) {
      from = std::clamp(from, first, first + size);
      to = std::clamp(to, first, first + size);
    }
    if (flipped) return {size - (to - first), size - (from - first)};
    return {from - first, to - first};
  };
  const auto [left, right] =
      axis(crop.left, crop.width, crop.flipped_columns, corners[0], corners[2]);
  const auto [top, bottom] = axis(crop.top, crop.height, crop.flipped_rows, corners[1], corners[3]);
  return {left, top, right, bottom};
}

// Drawn like torchvision's: a minimum overlap, then crops until one contains the center of a box
// and overlaps it enough; then another minimum overlap. torchvision's loop never ends if no overlap
// is 1 and no crop will do; here the image stays whole after the last draw.
void crop_around_boxes(const GeometryStep& step, const Draws& draw, const Objects& objects,
                       Crop& crop) {
  const auto part = [](std::int64_t extent, double factor) {
    return static_cast<std::int64_t>(static_cast<double>(extent) * factor);
  };
  const auto trials = static_cast<std::uint64_t>(step.trials), round = 1 + 2 * trials;
  for (std::uint64_t first = 0; first + round <= 1u << 16; first += round) {
    const double min_overlap = step.overlaps[one_of(std::ssize(step.overlaps), draw(first)[0])];
    if (min_overlap >= 1) return;
    for (std::uint64_t trial = 0; trial < trials; ++trial) {
      const auto [width_bits, height_bits] = draw(first + 1 + 2 * trial);
      const std::int64_t width = part(crop.width, between(step.range, width_bits));
      const std::int64_t height = part(crop.height, between(step.range, height_bits));
      const double ratio = static_cast<double>(width) / static_cast<double>(height);
      if (width == 0 || height == 0 || ratio < step.ratio[0] || ratio > step.ratio[1]) continue;
      const auto [left_bits, top_bits] = draw(first + 2 + 2 * trial);
      const std::int64_t left = one_of(crop.width - width, left_bits);
      const std::int64_t top = one_of(crop.height - height, top_bits);
      const Box crop_box{static_cast<double>(left), static_cast<double>(top),
                         static_cast<double>(left + width), static_cast<double>(top + height)};
      double max_overlap = -1;
      for (std::size_t i = 0; i < objects.count; ++i) {
        const Box box = box_in(crop, objects.corners + 4 * i);
        if (crop_box.has_center_of(box)) max_overlap = std::max(max_overlap, box.overlap(crop_box));
      }
      if (max_overlap < 0 || max_overlap < min_overlap) continue;
      for (std::size_t i = 0; i < objects.count; ++i) {
        objects.remain[i] &= crop_box.has_center_of(box_in(crop, objects.corners + 4 * i));
      }
      return crop_to(crop, top, left, height, width);
    }
  }
}

// A crop of a random area and ratio, drawn like torchvision's: up to ten tries to find one that
// fits, else the largest center crop of an allowed ratio.
void crop_some_area(const GeometryStep& step, const Draws& draw, Crop& crop) {
  const auto whole = [](double number) {
    return static_cast<std::int64_t>(std::nearbyint(number));
  };
  const auto columns = static_cast<double>(crop.width), rows = static_cast<double>(crop.height);
  const std::array<double, 2> logarithms{std::log(step.ratio[0]), std::log(step.ratio[1])};
  for (std::uint64_t number = 0; number < 10; ++number) {
    const auto [area_bits, ratio_bits] = draw(2 * number);
    const double area = rows * columns * between(step.range, area_bits);
    const double ratio = std::exp(between(logarithms, ratio_bits));
    const double width = std::nearbyint(std::sqrt(area * ratio));
    const double height = std::nearbyint(std::sqrt(area / ratio));
    if (width < 1 || width > columns || height < 1 || height > rows) continue;
    const auto [top_bits, left_bits] = draw(2 * number + 1);
    const CropStarts above(crop.height, whole(height), 0, 0, false);
    const CropStarts beside(crop.width, whole(width), 0, 0, false);
    return crop_to(crop, above.first(top_bits), beside.first(left_bits), whole(height),
                   whole(width));
  }
  std::int64_t height = crop.height, width = crop.width;
  if (columns / rows < step.ratio[0])
    height = std::max<std::int64_t>(whole(columns / step.ratio[0]), 1);
  if (columns / rows > step.ratio[1])
    width = std::max<std::int64_t>(whole(rows * step.ratio[1]), 1);
  crop_to(crop, (crop.height - height) / 2, (crop.width - width) / 2, height, width);
}

// The sides of an image whose longer edge would exceed `max_longer`, rounded step by step like
// transformers' get_size_with_aspect_ratio.
std::array<std::int64_t, 2> sides_within(std::int64_t shorter, std::int64_t longer,
                                         std::int64_t max_longer) {
  const auto from = static_cast<double>(shorter), to = static_cast<double>(longer);
  const double exact = static_cast<double>(max_longer) * from / to;
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
  std::int64_t new_shorter = step.height, max_longer = step.width;
  switch (step.kind) {
    case Kind::resize_to_one_of: {
      const std::int64_t size = step.sizes[one_of(std::ssize(step.sizes), draw()[0])];
      double factor = static_cast<double>(size) / static_cast<double>(shorter);
      if (max_longer > 0) {
        factor = std::min(factor, static_cast<double>(max_longer) / static_cast<double>(longer));
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
      max_longer = 0;
      break;
    case Kind::resize_edges:
      break;
    default:
      return {step.height, step.width};
  }
  std::int64_t new_longer = max_longer;
  if (new_shorter > 0) new_longer = new_shorter * longer / shorter;
  if (step.height == 0) {
    new_shorter = max_longer * shorter / longer;
  } else if (max_longer > 0 && step.as_transformers) {
    const double longest = static_cast<double>(longer) / static_cast<double>(shorter) *
                           static_cast<double>(new_shorter);
    if (longest > static_cast<double>(max_longer)) {
      const auto sides = sides_within(shorter, longer, max_longer);
      new_shorter = sides[0];
      new_longer = sides[1];
    }
  } else if (max_longer > 0 && new_longer > max_longer) {
    new_shorter = max_longer * new_shorter / new_longer;
    new_longer = max_longer;
  }
  if (width <= height) return {new_longer, new_shorter};
  return {new_shorter, new_longer};
}

// Omits a resize to the current size.
void simplify(Transform& transform) {
  const Crop& part = transform.resized_crop;
  const bool is_inside = part.top >= 0 && part.left >= 0 &&
                         part.top + part.height <= transform.height &&
                         part.left + part.width <= transform.width;
  if (!transform.resized || !is_inside || transform.height != transform.source.height ||
      transform.width != transform.source.width) {
    return;
  }
  crop_to(transform.source, part.top, part.left, part.height, part.width);
  transform.source.flipped_rows ^= part.flipped_rows;
  transform.source.flipped_columns ^= part.flipped_columns;
  transform.resized = false;
}

// One axis of the visible part, which may be outside the image. `resized`: the size of the resized
// axis.
AxisMap axis_map(const Transform& transform, std::int64_t Crop::* begin, std::int64_t Crop::* size,
                 bool Crop::* flipped, std::int64_t resized) {
  const Crop &source = transform.source, &part = transform.visible();
  const auto shown = static_cast<double>(part.*size);
  auto first = static_cast<double>(source.*begin);
  double extent = shown;
  bool is_mirrored = source.*flipped;
  if (transform.resized) {
    // Rounded once, so that a whole image maps whole numbers to whole numbers.
    const auto pixels = [&](std::int64_t of_resized) {
      return static_cast<double>(of_resized * source.*size) / static_cast<double>(resized);
    };
    first += pixels(is_mirrored ? resized - part.*begin - part.*size : part.*begin);
    extent = pixels(part.*size);
    is_mirrored ^= part.*flipped;
  }
  return {first, extent == 0 ? 0 : shown / extent, is_mirrored ? shown : -1};
}

}  // namespace

CoordinateMap coordinate_map(const Transform& transform) {
  return {axis_map(transform, &Crop::left, &Crop::width, &Crop::flipped_columns, transform.width),
          axis_map(transform, &Crop::top, &Crop::height, &Crop::flipped_rows, transform.height)};
}

std::size_t draw_interpolation(std::size_t count, std::uint64_t key, std::int64_t sample) {
  // Geometries number their steps from 0, colors from 2^62.
  const auto [bits, _] = Philox(key)(static_cast<std::uint64_t>(sample), std::uint64_t{1} << 61);
  return below(count, bits);
}

Misfit draw_transform(const Geometry& geometry, std::int64_t height, std::int64_t width,
                      std::int64_t sample, const Objects& objects, Transform& transform) {
  transform = {};
  transform.source.height = height;
  transform.source.width = width;
  for (std::size_t number = 0; number < geometry.steps.size(); ++number) {
    const GeometryStep& step = geometry.steps[number];
    const Draws draw(geometry.key, sample, number);
    Crop& crop = transform.visible();
    const Border border = transform.resized ? geometry.borders.resized : geometry.borders.source;
    switch (step.kind) {
      case Kind::flip_rows:
        crop.flipped_rows ^= uniform(draw()[0]) < step.probability;
        break;
      case Kind::flip_columns:
        crop.flipped_columns ^= uniform(draw()[0]) < step.probability;
        break;
      case Kind::center_crop: {
        const auto [rows, columns] = crop_size(step, crop);
        const std::int64_t top = middle(crop.height, rows, step.as_transformers);
        const std::int64_t left = middle(crop.width, columns, step.as_transformers);
        // Checks the padding behind the image, which is never smaller than in front of it.
        for (const Misfit misfit : {beyond(crop.height, border, rows - crop.height + top),
                                    beyond(crop.width, border, columns - crop.width + left)}) {
          if (misfit != Misfit::none) return misfit;
        }
        crop_to(crop, top, left, rows, columns);
        break;
      }
      case Kind::pad: {
        const auto [above, left, below, right] =
            std::array{step.above, step.left, step.below, step.right};
        for (const Misfit misfit : {beyond(crop.height, border, std::max(above, below)),
                                    beyond(crop.width, border, std::max(left, right))}) {
          if (misfit != Misfit::none) return misfit;
        }
        crop_to(crop, -above, -left, crop.height + above + below, crop.width + left + right);
        break;
      }
      case Kind::random_crop: {
        const Misfit misfit = crop_at_random(step, border, geometry.may_be_small, draw, crop);
        if (misfit == Misfit::none) break;
        crop.height = step.height;
        crop.width = step.width;
        return misfit;
      }
      case Kind::zoom_out:
        zoom_out(step, draw, crop);
        break;
      case Kind::iou_crop:
        crop_around_boxes(step, draw, objects, crop);
        break;
      case Kind::random_resized_crop:
      case Kind::resize:
      case Kind::resize_edges:
      case Kind::resize_between:
      case Kind::resize_to_one_of:
      case Kind::scale_jitter:
      case Kind::keep_ratio:
        if (crop.height == 0 || crop.width == 0) return Misfit::empty;
        if (step.kind == Kind::random_resized_crop) crop_some_area(step, draw, crop);
        const auto [rows, columns] = resized_size(step, draw, crop.height, crop.width);
        if (rows == 0 || columns == 0) return Misfit::vanishes;
        transform.resize(rows, columns);
        break;
    }
  }
  simplify(transform);
  return Misfit::none;
}

}  // namespace pinfeed::kernels
