#include "bindings/python/image_crops.h"

#include <cstdlib>
#include <initializer_list>

#include "bindings/python/scalar_types.h"

namespace py = pybind11;

namespace pinfeed::bindings {

template <>
struct Names<kernels::GeometryStep::Kind> {
  using Kind = kernels::GeometryStep::Kind;
  static constexpr std::pair<const char*, Kind> all[] = {
      {"random_crop", Kind::random_crop},
      {"center_crop", Kind::center_crop},
      {"pad", Kind::pad},
      {"zoom_out", Kind::zoom_out},
      {"iou_crop", Kind::iou_crop},
      {"random_resized_crop", Kind::random_resized_crop},
      {"resize", Kind::resize},
      {"resize_edges", Kind::resize_edges},
      {"resize_between", Kind::resize_between},
      {"resize_to_one_of", Kind::resize_to_one_of},
      {"scale_jitter", Kind::scale_jitter},
      {"keep_ratio", Kind::keep_ratio},
      {"flip_rows", Kind::flip_rows},
      {"flip_columns", Kind::flip_columns}};
};

namespace {

using kernels::Border;
using kernels::ColorStep;
using kernels::Crop;
using kernels::GeometryStep;
using kernels::ImageCrop;
using kernels::ImageResize;
using kernels::ImageSize;
using kernels::ImageSource;
using kernels::Interpolation;
using kernels::Misfit;
using kernels::Transform;

// Whether the kernels can handle a crop of an image.
bool is_sound(const Crop& crop, std::int64_t height, std::int64_t width, Border border) {
  const auto is_axis_sound = [&](std::int64_t begin, std::int64_t size, std::int64_t extent) {
    constexpr std::int64_t kMax = std::int64_t{1} << 61;
    if (size < 0 || extent < 0 || std::max({size, extent, std::abs(begin)}) > kMax) return false;
    if (border == Border::constant || size == 0 || (begin >= 0 && begin + size <= extent)) {
      return true;
    }
    if (border == Border::edge) return extent > 0;
    return begin > -extent && begin + size < 2 * extent;
  };
  return is_axis_sound(crop.top, crop.height, height) &&
         is_axis_sound(crop.left, crop.width, width);
}

[[noreturn]] void fail(const Images& images, std::size_t image, std::string expected,
                       std::string got, std::string hint = "") {
  throw wrong_value(Subject{images.name(), static_cast<std::int64_t>(image)}, std::move(expected),
                    std::move(got), std::move(hint));
}

void require_fit(const Images& images, std::size_t image, const Crop& crop, Misfit misfit) {
  if (misfit == Misfit::none) return;
  const std::string subject = "an image of " + size_text(images.size_of(image));
  switch (misfit) {
    case Misfit::none:
      return;
    case Misfit::too_small:
      fail(images, image,
           subject + " is too small for RandomCrop(" + pair_text(crop.height, crop.width) + ")", "",
           "pass pad_if_needed=True, more padding, or Image(pad_value=)");
    case Misfit::no_pixels:
      fail(images, image, subject + " has no pixel to repeat", "",
           "pass padding_mode=\"constant\"");
    case Misfit::too_few_to_mirror:
      fail(images, image,
           subject +
               " has too few pixels for padding_mode=\"reflect\", which adds fewer pixels than an "
               "image has",
           "", "pass padding_mode=\"edge\"");
    case Misfit::empty:
      fail(images, image, subject + " has no pixels to resize", "", "leave it out");
    case Misfit::vanishes:
      fail(images, image, subject + " would be resized to a side of 0 pixels", "",
           "pass both height and width as the size");
  }
}

void require_sound(const Images& images, std::size_t image, const Transform& transform,
                   const kernels::Borders& borders) {
  const Crop& source = transform.source;
  bool sound = is_sound(source, images.height(image), images.width(image), borders.source);
  if (transform.resized) {
    sound = sound &&
            std::min({source.height, source.width, transform.height, transform.width}) > 0 &&
            is_sound(transform.resized_crop, transform.height, transform.width, borders.resized);
  }
  if (sound) return;
  fail(images, image,
       "an image of " + size_text(images.size_of(image)) + " has too few pixels for augment", "",
       "leave it out");
}

// `is_in_proportion`: no step sets the height and width directly.
void require_no_canvas(const Images& images, std::size_t image, const Transform& transform,
                       bool is_in_proportion) {
  const Crop& crop = transform.source;
  const auto pad = [&](const Crop& crop, const std::string& what) {
    fail(images, image,
         "a crop to " + pair_text(crop.height, crop.width) + " would pad " + what + " to " +
             kTooManyPixels,
         "", "crop to a smaller size, or resize first");
  };
  const auto subject = [&] { return "an image of " + size_text(images.size_of(image)); };
  const double own = pixels(images.height(image), images.width(image));
  if (is_too_large(pixels(crop.height, crop.width), own)) pad(crop, subject());
  if (!transform.resized) return;
  const Crop& part = transform.resized_crop;
  const double resized = pixels(transform.height, transform.width);
  if (!is_too_large(pixels(part.height, part.width), is_in_proportion ? own : resized)) return;
  if (part.height > transform.height || part.width > transform.width) {
    pad(part, subject() + ", resized to " + pair_text(transform.height, transform.width) + ",");
  }
  fail(images, image,
       subject() + " would be resized to " + pair_text(part.height, part.width) + ", " +
           kTooManyPixels,
       "", "limit the longer edge with max_size, or leave the sample out");
}

}  // namespace

std::shared_ptr<ImageCrops> find_crops(const Images& images, const AugmentOptions& options,
                                       const Draw& draw, std::string entry) {
  if (static_cast<std::size_t>(draw.samples.size()) != images.count()) {
    throw wrong_value({images.name()}, "expected one sample number per image");
  }
  auto found = std::make_shared<ImageCrops>(
      ImageCrops{std::move(entry), std::vector<Transform>(images.count()), images.sizes()});
  const kernels::Geometry geometry{options.steps,
                                   {options.border.kind, options.resized_border.kind},
                                   options.may_be_small,
                                   draw.key};
  using Kind = GeometryStep::Kind;
  const bool is_in_proportion = std::ranges::none_of(options.steps, [](const GeometryStep& step) {
    return step.kind == Kind::resize || step.kind == Kind::random_resized_crop;
  });
  if (draw.objects) require_objects(*draw.objects, images.count(), images.name());
  kernels::Objects objects;
  for (std::size_t i = 0; i < images.count(); ++i) {
    if (draw.objects) {
      const auto& [corners, offsets, remain] = *draw.objects;
      const std::int64_t first = offsets.data()[i];
      objects = {corners.data() + 4 * first, flags_of(remain) + first,
                 static_cast<std::size_t>(offsets.data()[i + 1] - first)};
    }
    Transform& transform = found->transforms[i];
    const Misfit misfit = kernels::draw_transform(geometry, images.height(i), images.width(i),
                                                  draw.samples.data()[i], objects, transform);
    require_fit(images, i, transform.visible(), misfit);
    require_no_canvas(images, i, transform, is_in_proportion);
  }
  return found;
}

Crops::Crops(const Images& images, const AugmentOptions& options, const Draw& draw,
             std::shared_ptr<const ImageCrops> crops, std::vector<std::size_t> rows)
    : images_(images),
      borders_{options.border.kind, options.resized_border.kind},
      crops_(std::move(crops)),
      rows_(std::move(rows)) {
  require_sizes();
  interpolation_ = options.interpolation;
  in_floats_ = !takes_nearest(interpolation_) && images.become_floats() &&
               (images.dtype() != kUint8 || options.in_floats);
  const DType resized = in_floats_ ? kFloat32 : images.dtype();
  const std::string fill = images.name() + ": fill";
  fills_ = {fill_pixel(options.border.fill, images.dtype(), images.channels(), fill),
            fill_pixel(options.resized_border.fill, resized, images.channels(), fill)};
  const bool draws = !options.colors.empty() || !options.one_of.empty();
  if (draws && draw.samples.size() != static_cast<py::ssize_t>(images.count())) {
    throw wrong_value({images.name()}, "expected one sample number per image");
  }
  if (std::ranges::any_of(options.one_of, kernels::takes_nearest)) {
    throw wrong_value({images.name()}, "one_of must have antialiased interpolations only");
  }
  drawn_.resize(images.count());
  for (std::size_t i = 0; i < images.count() && !options.one_of.empty(); ++i) {
    drawn_[i] = options.one_of[kernels::draw_interpolation(options.one_of.size(), draw.key,
                                                           draw.samples.data()[i])];
  }
  colors_ = {options.colors, draw.key, draw.samples.data(),
             static_cast<std::size_t>(images.frames())};
  require_values();
}

std::vector<ImageSize> Crops::sizes() const {
  std::vector<ImageSize> sizes(images_.count());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Crop& crop = transform(i).visible();
    sizes[i] = {static_cast<std::size_t>(crop.height), static_cast<std::size_t>(crop.width)};
  }
  return sizes;
}

ImageSize Crops::common_size() const {
  const std::vector<ImageSize> all = sizes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    fail(images_, i, "images of one size, or a crop to one",
         size_text(all[0]) + " of sample 0 and " + size_text(all[i]),
         "pass pad_value to pad images of different sizes");
  }
  return all[0];
}

void Crops::apply(std::vector<ImageSource>& sources) {
  beyond_.reserve(sources.size());
  std::int64_t widest = 0;  // of crops that extend beyond their images
  for (std::size_t i = 0; i < sources.size(); ++i) {
    ImageSource& source = sources[i];
    const std::size_t image = i / static_cast<std::size_t>(images_.frames());
    const std::int64_t rows = images_.height(image), columns = images_.width(image);
    auto [top, left, height, width, flipped_rows, flipped_columns, _] = transform(image).source;
    if (flipped_rows && rows > 0) {
      source.data += (rows - 1) * source.row_stride;
      source.row_stride = -source.row_stride;
      top = rows - top - height;
    }
    if (flipped_columns && columns > 0) {
      source.data += (columns - 1) * source.column_stride;
      source.column_stride = -source.column_stride;
      left = columns - left - width;
    }
    if (top >= 0 && left >= 0 && top + height <= rows && left + width <= columns) {
      source.data += top * source.row_stride + left * source.column_stride;
    } else {
      source.crop = &beyond_.emplace_back(ImageCrop{top, left, static_cast<std::size_t>(rows),
                                                    static_cast<std::size_t>(columns),
                                                    borders_.source, nullptr});
      widest = std::max(widest, width);
    }
  }
  for (std::int64_t column = 0; column < widest; ++column) {
    fill_row_.insert(fill_row_.end(), fills_[0].begin(), fills_[0].end());
  }
  for (ImageCrop& crop : beyond_) crop.fill = fill_row_.data();
}

std::vector<std::optional<ImageResize>> Crops::resizes() const {
  if (!any_is_resized()) return {};
  const auto frames = static_cast<std::size_t>(images_.frames());
  std::vector<std::optional<ImageResize>> resizes(images_.count() * frames);
  for (std::size_t i = 0; i < resizes.size(); ++i) {
    const Transform& transform = this->transform(i / frames);
    if (!transform.resized) continue;
    const auto size = [](std::int64_t height, std::int64_t width) {
      return ImageSize{static_cast<std::size_t>(height), static_cast<std::size_t>(width)};
    };
    resizes[i] = {.source = size(transform.source.height, transform.source.width),
                  .resized = size(transform.height, transform.width),
                  .top = transform.resized_crop.top,
                  .left = transform.resized_crop.left,
                  .flipped_rows = transform.resized_crop.flipped_rows,
                  .flipped_columns = transform.resized_crop.flipped_columns,
                  .border = borders_.resized,
                  .fill = fills_[1].data(),
                  .interpolation = drawn_[i / frames]};
  }
  return resizes;
}

bool Crops::any_is_resized() const {
  return std::ranges::any_of(crops_->transforms,
                             [](const Transform& transform) { return transform.resized; });
}

// Images at the same address share a crop.
void Crops::require_sizes() const {
  const std::size_t images = rows_.empty() ? crops_->transforms.size() : rows_.size();
  if (images != images_.count()) {
    throw wrong_value(
        {images_.name()},
        std::to_string(crops_->transforms.size()) + " images, one for each in " + crops_->entry,
        std::to_string(images));
  }
  for (std::size_t i = 0; i < images_.count(); ++i) {
    const std::size_t row = rows_.empty() ? i : rows_[i];
    if (row >= crops_->transforms.size()) {
      throw wrong_index({images_.name()}, "row " + std::to_string(row) + " is out of range for " +
                                              std::to_string(crops_->transforms.size()) +
                                              " images");
    }
    const ImageSize& size = crops_->sources[row];
    if (size == images_.size_of(i)) {
      require_sound(images_, i, crops_->transforms[row], borders_);  // the borders may differ
      continue;
    }
    fail(images_, row,
         "an image of " + size_text(size) + " as in " + crops_->entry +
             ", with which it shares augment",
         size_text(images_.size_of(i)),
         "if the images don't belong together, create a second geometry");
  }
}

// Only color bytes have tables; integers that are copied can't be interpolated.
void Crops::require_values() const {
  const std::string got = "images of " + images_.dtype().name();
  if (colors() != nullptr && !images_.are_colors()) {
    throw wrong_type(
        {images_.name()},
        "color transforms need uint8 images with dtype=torch.uint8 or a floating one, got " + got,
        "", "leave the color transforms out");
  }
  const std::int64_t channels = images_.channels();
  if (channels != 1 && channels != 3 &&
      std::ranges::any_of(colors_.steps, &ColorStep::changes_saturation)) {
    const std::string cut =
        channels > 3 ? images_.first_channels(3) + " leaves alpha out" : "leave them out";
    throw wrong_value({images_.name()},
                      "RGB images for saturation and RandomGrayscale, or gray ones",
                      std::to_string(channels) + " channels", cut);
  }
  if (takes_nearest(interpolation_) || in_floats_ || images_.are_colors()) return;
  if (!any_is_resized()) return;
  throw wrong_type({images_.name()}, "images that stay integers can't be interpolated, got " + got,
                   "",
                   "use interpolation=\"nearest-exact\" for masks, dtype=torch.float32 for images");
}

void require_offsets(const Integers& offsets, std::size_t images, py::ssize_t items,
                     const std::string& name) {
  bool fits = offsets.size() == static_cast<py::ssize_t>(images) + 1;
  std::int64_t last = 0;
  for (py::ssize_t i = 0; fits && i < offsets.size(); ++i) {
    fits = offsets.data()[i] >= last && offsets.data()[i] <= items;
    last = offsets.data()[i];
  }
  if (fits) return;
  throw wrong_value({name}, "expected " + std::to_string(images + 1) +
                                " offsets that don't decrease, from 0 to at most " +
                                std::to_string(items));
}

void require_objects(const ObjectBoxes& objects, std::size_t images, const std::string& name) {
  const auto& [corners, offsets, remain] = objects;
  require_offsets(offsets, images, remain.size(), name);
  if (corners.size() != 4 * remain.size()) {
    throw wrong_value({name}, "expected four corners and a flag for each box");
  }
  if (!corners.writeable() || !remain.writeable()) {
    throw wrong_value({name}, "corners and flags must be writable");
  }
}

template <>
struct Checks<GeometryStep> {
  static void check(const GeometryStep& step) {
    using Kind = GeometryStep::Kind;
    constexpr std::int64_t kMax = std::int64_t{1} << 31;
    const auto are_sizes = [](std::initializer_list<std::int64_t> sizes) {
      return std::ranges::all_of(sizes, [](std::int64_t n) { return n >= 0 && n <= kMax; });
    };
    const auto are_numbers = [](const auto& numbers) {
      return std::ranges::all_of(numbers, [](double n) { return n >= 0 && n <= kMax; });
    };
    const bool between = step.kind != Kind::resize_between || step.height <= step.width;
    const bool in_proportion =
        step.kind != Kind::keep_ratio ||
        (step.height > 0 && step.width > 0 && step.longest >= 0 && step.longest <= 1 &&
         step.range[0] > 0 && are_numbers(step.ratio) && step.ratio[0] > 0);
    const bool chooses = (step.kind != Kind::resize_to_one_of || !step.sizes.empty()) &&
                         (step.kind != Kind::iou_crop || !step.overlaps.empty());
    if (between && in_proportion && chooses && step.trials < 1 << 15 && are_numbers(step.sizes) &&
        are_sizes({step.height, step.width, step.above, step.left, step.below, step.right,
                   step.trials}) &&
        are_numbers(step.share) && are_numbers(step.range)) {
      return;
    }
    throw wrong_value({"GeometryStep"}, "a number is out of range");
  }
};

void register_augment_options(py::module_& m) {
  using Step = GeometryStep;
  bind_options<Step, &Step::kind, &Step::height, &Step::width, &Step::share, &Step::above,
               &Step::left, &Step::below, &Step::right, &Step::pad_if_needed,
               &Step::as_transformers, &Step::range, &Step::ratio, &Step::sizes, &Step::overlaps,
               &Step::trials, &Step::probability, &Step::longest, &Step::by_area,
               &Step::ratio_probability>(m, "GeometryStep");
  bind_options<ColorStep, &ColorStep::brightness, &ColorStep::contrast, &ColorStep::saturation,
               &ColorStep::probability>(m, "ColorStep");
  bind_options<BorderOptions, &BorderOptions::kind, &BorderOptions::fill>(m, "BorderOptions")
      .def_readonly("kind", &BorderOptions::kind);
  bind_options<AugmentOptions, &AugmentOptions::steps, &AugmentOptions::border,
               &AugmentOptions::resized_border, &AugmentOptions::interpolation,
               &AugmentOptions::one_of, &AugmentOptions::in_floats, &AugmentOptions::colors,
               &AugmentOptions::may_be_small>(m, "AugmentOptions");
  bind_class<ImageCrops, std::shared_ptr<ImageCrops>>(m, "ImageCrops")
      .def_property_readonly("sources", [](const ImageCrops& crops) {
        py::list sizes;
        for (const ImageSize& size : crops.sources) {
          sizes.append(py::make_tuple(size.height, size.width));
        }
        return sizes;
      });
}

}  // namespace pinfeed::bindings
