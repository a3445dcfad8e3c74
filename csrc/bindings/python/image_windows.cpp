#include "bindings/python/image_windows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bindings/python/fill_value.h"

namespace py = pybind11;

namespace pinfeed::bindings {

template <>
struct Names<kernels::GeometryStep::Kind> {
  using Kind = kernels::GeometryStep::Kind;
  static constexpr std::pair<const char*, Kind> all[] = {
      {"random_crop", Kind::random_crop},
      {"center_crop", Kind::center_crop},
      {"random_resized_crop", Kind::random_resized_crop},
      {"resize", Kind::resize},
      {"resize_edges", Kind::resize_edges},
      {"flip_rows", Kind::flip_rows},
      {"flip_columns", Kind::flip_columns}};
};
template <>
struct Names<kernels::ColorStep::Kind> {
  using Kind = kernels::ColorStep::Kind;
  static constexpr std::pair<const char*, Kind> all[] = {{"jitter", Kind::jitter},
                                                         {"invert", Kind::invert},
                                                         {"posterize", Kind::posterize},
                                                         {"solarize", Kind::solarize}};
};

}  // namespace pinfeed::bindings

template <>
struct pybind11::detail::type_caster<pinfeed::kernels::GeometryStep::Kind>
    : pinfeed::bindings::NamedCaster<pinfeed::kernels::GeometryStep::Kind> {};
template <>
struct pybind11::detail::type_caster<pinfeed::kernels::ColorStep::Kind>
    : pinfeed::bindings::NamedCaster<pinfeed::kernels::ColorStep::Kind> {};

namespace pinfeed::bindings {
namespace {

using kernels::Border;
using kernels::ColorStep;
using kernels::GeometryStep;
using kernels::ImageResize;
using kernels::ImageSize;
using kernels::ImageSource;
using kernels::ImageWindow;
using kernels::Interpolation;
using kernels::Misfit;
using kernels::View;
using kernels::Window;

// An item of the dtype for each channel: of one number for all, or of one for each.
std::vector<std::uint8_t> fill_pixel(const py::sequence& fill, DType dtype, std::int64_t channels,
                                     const std::string& name) {
  const auto count = static_cast<std::size_t>(channels);
  if (fill.size() != 1 && fill.size() != count) {
    throw py::value_error(name + ": fill must be one number or one for each of " +
                          std::to_string(channels) + " channels, got " +
                          std::to_string(fill.size()));
  }
  const std::size_t item = dtype.item_size();
  std::vector<std::uint8_t> pixel(count * item);
  const std::size_t repeats = fill.size() == 1 ? count : 1;
  for (std::size_t c = 0; c < fill.size(); ++c) {
    const py::object value = fill[c];
    fill_value(value, dtype, name + ": fill").write(pixel.data() + c * item, repeats, false);
  }
  return pixel;
}

std::string number_text(double number) { return py::str(py::float_(number)); }

std::string pair_text(std::int64_t first, std::int64_t second) {
  const std::int64_t pair[] = {first, second};
  return shape_text(pair);
}

}  // namespace

Windows::Windows(const Images& images, const AugmentOptions& options, const Draw& draw)
    : images_(images), borders_{options.border.kind, options.resized_border.kind} {
  interpolate(options.interpolation, options.in_floats);
  const DType resized = in_floats_ ? kFloat32 : images.dtype();
  fills_ = {fill_pixel(options.border.fill, images.dtype(), images.channels(), images.name()),
            fill_pixel(options.resized_border.fill, resized, images.channels(), images.name())};
  const Integers& samples = draw.samples;
  if (static_cast<std::size_t>(samples.size()) != images.count()) {
    throw py::value_error(images.name() + ": expected a number for each sample");
  }
  sizes_ = Integers(std::vector<py::ssize_t>{samples.size(), 2});
  std::int64_t* size = sizes_.mutable_data();
  for (std::size_t i = 0; i < images.count(); ++i) {
    *size++ = images.height(i);
    *size++ = images.width(i);
  }
  if (draw.other_leaf) std::apply([&](auto&... leaf) { require_sizes(leaf...); }, *draw.other_leaf);
  views_.resize(images.count());
  for (std::size_t i = 0; i < views_.size(); ++i) {
    require_fit(i, kernels::find_view(options.steps, borders_, images.height(i), images.width(i),
                                      draw.key, samples.data()[i], views_[i]));
    require_no_canvas(i);
  }
  colors_ = {options.colors, draw.key, samples.data(), static_cast<std::size_t>(images.frames())};
  require_values();
}

Windows::Windows(const Images& images, const GivenWindows& given) : images_(images) {
  const auto& [windows, size, interpolation, in_floats] = given;
  borders_ = {Border::constant, Border::constant};  // which no window reaches
  interpolate(interpolation, in_floats);
  views_.resize(images.count());
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const double* const numbers = windows.data() + 6 * i;
    const auto whole = [](double number) { return number == std::floor(number); };
    const double rows = numbers[0] + numbers[2], columns = numbers[1] + numbers[3];
    if (!std::all_of(numbers, numbers + 6, whole) || std::min(numbers[0], numbers[1]) < 0 ||
        std::min(numbers[2], numbers[3]) < 1 || rows > static_cast<double>(images.height(i)) ||
        columns > static_cast<double>(images.width(i))) {
      std::string text;
      for (int k = 0; k < 4; ++k) text += (k == 0 ? "" : ", ") + number_text(numbers[k]);
      fail(i,
           "a window of whole pixels within an image of " +
               pair_text(images.height(i), images.width(i)),
           "top, left, height, width " + text,
           "windows with fractions or padding take Image(augment=...)");
    }
    const auto number = [&](int k) { return static_cast<std::int64_t>(numbers[k]); };
    View& view = views_[i];
    view = {.source = {number(0), number(1), number(2), number(3)},
            .height = size[0],
            .width = size[1],
            .kept = {.height = size[0], .width = size[1]}};
    view.resized = view.source.height != size[0] || view.source.width != size[1];
    Window& mirrored = view.resized ? view.kept : view.source;
    mirrored.flipped_rows = numbers[4] != 0;
    mirrored.flipped_columns = numbers[5] != 0;
  }
  require_values();
}

void Windows::apply(std::vector<ImageSource>& sources) {
  beyond_.reserve(sources.size());
  std::int64_t widest = 0;  // of those that leave their images
  for (std::size_t i = 0; i < sources.size(); ++i) {
    ImageSource& source = sources[i];
    const std::size_t image = i / static_cast<std::size_t>(images_.frames());
    const std::int64_t rows = images_.height(image), columns = images_.width(image);
    auto [top, left, height, width, flipped_rows, flipped_columns] = views_[image].source;
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
      source.window = &beyond_.emplace_back(ImageWindow{top, left, static_cast<std::size_t>(rows),
                                                        static_cast<std::size_t>(columns),
                                                        borders_.source, nullptr});
      widest = std::max(widest, width);
    }
  }
  for (std::int64_t column = 0; column < widest; ++column) {
    fill_row_.insert(fill_row_.end(), fills_[0].begin(), fills_[0].end());
  }
  for (ImageWindow& window : beyond_) window.fill = fill_row_.data();
}

py::object Windows::write(const OutputRequest& request) const {
  const Shape shape{static_cast<std::int64_t>(views_.size()), 6};
  const Output out = make_output(request, shape, kFloat64, images_.name());
  auto* to = reinterpret_cast<double*>(out.data);
  for (const View& view : views_) to = std::ranges::copy(kernels::region(view), to).out;
  return out.array;
}

std::vector<std::optional<ImageResize>> Windows::resizes() const {
  if (!any_is_resized()) return {};
  const auto frames = static_cast<std::size_t>(images_.frames());
  std::vector<std::optional<ImageResize>> resizes(views_.size() * frames);
  for (std::size_t i = 0; i < resizes.size(); ++i) {
    const View& view = views_[i / frames];
    if (!view.resized) continue;
    const auto size = [](std::int64_t height, std::int64_t width) {
      return ImageSize{static_cast<std::size_t>(height), static_cast<std::size_t>(width)};
    };
    resizes[i] = {.source = size(view.source.height, view.source.width),
                  .resized = size(view.height, view.width),
                  .top = view.kept.top,
                  .left = view.kept.left,
                  .flipped_rows = view.kept.flipped_rows,
                  .flipped_columns = view.kept.flipped_columns,
                  .border = borders_.resized,
                  .fill = fills_[1].data()};
  }
  return resizes;
}

bool Windows::any_is_resized() const {
  return std::ranges::any_of(views_, [](const View& view) { return view.resized; });
}

void Windows::fail(std::size_t image, std::string expected, std::string got,
                   std::string hint) const {
  throw wrong_value(Subject{images_.name(), static_cast<std::int64_t>(image)}, std::move(expected),
                    std::move(got), std::move(hint));
}

// A window is shared by images that lie upon each other.
void Windows::require_sizes(const Integers& others, const std::string& leaf) const {
  for (std::size_t i = 0; others.size() == sizes_.size() && i < images_.count(); ++i) {
    const std::int64_t* const other = others.data() + 2 * i;
    if (other[0] == images_.height(i) && other[1] == images_.width(i)) continue;
    fail(i,
         "an image of " + pair_text(other[0], other[1]) + " as in " + leaf +
             ", with which it shares augment",
         pair_text(images_.height(i), images_.width(i)),
         "where images don't belong together, make a second geometry");
  }
}

void Windows::require_fit(std::size_t image, Misfit misfit) const {
  const Window& window = views_[image].seen();
  if (misfit == Misfit::none && window.height == height() && window.width == width()) return;
  const std::string subject =
      "an image of " + pair_text(images_.height(image), images_.width(image));
  if (misfit == Misfit::too_small) {
    fail(image,
         subject + " is too small for RandomCrop(" + pair_text(window.height, window.width) + ")",
         "", "pass pad_if_needed=True, or more padding");
  }
  if (misfit == Misfit::no_pixels) {
    fail(image, subject + " has no pixel that could be repeated", "",
         "take padding_mode=\"constant\"");
  }
  if (misfit == Misfit::too_few_to_mirror) {
    fail(image,
         subject +
             " has too few pixels for padding_mode=\"reflect\", which adds at most one less than "
             "there are",
         "", "take padding_mode=\"edge\"");
  }
  if (misfit == Misfit::empty) fail(image, subject + " has no pixels to resize", "");
  if (misfit == Misfit::vanishes) {
    fail(image, subject + " would get a side of 0 pixels", "", "resize to a height and a width");
  }
  fail(image, "images of one size, or a crop to one",
       pair_text(height(), width()) + " of sample 0 and " + pair_text(window.height, window.width));
}

// What is resized is looked at pixel by pixel, those beyond the image too.
void Windows::require_no_canvas(std::size_t image) const {
  constexpr double kMost = 1 << 26;
  const View& view = views_[image];
  const double seen =
      static_cast<double>(view.source.height) * static_cast<double>(view.source.width);
  const double own = static_cast<double>(images_.height(image) * images_.width(image));
  if (!view.resized || seen <= std::max(kMost, 4 * own)) return;
  fail(image,
       "a crop to " + pair_text(view.source.height, view.source.width) + " would pad an image of " +
           pair_text(images_.height(image), images_.width(image)) +
           " to more than 2**26 pixels before it is resized",
       "", "crop to less, or resize first");
}

void Windows::interpolate(Interpolation interpolation, bool bytes_in_floats) {
  interpolation_ = interpolation;
  in_floats_ = interpolation_ != Interpolation::nearest && images_.become_floats() &&
               (images_.dtype() != kUint8 || bytes_in_floats);
}

// Only bytes of colour have tables, and between other integers that stay what they are is nothing.
void Windows::require_values() const {
  const std::string got = ", got images of " + images_.dtype().name();
  if (colors() != nullptr && !images_.are_colors()) {
    throw py::type_error(images_.name() +
                         ": color is for uint8 images with dtype=torch.uint8 or a floating one" +
                         got + "; leave it out");
  }
  if (interpolation_ == Interpolation::nearest || in_floats_ || images_.are_colors()) return;
  if (!any_is_resized()) return;
  throw py::type_error(images_.name() + ": integers that stay what they are can't be interpolated" +
                       got +
                       "; interpolation=\"nearest\" resizes masks, dtype=torch.float32 images");
}

void register_augment_options(py::module_& m) {
  using Step = GeometryStep;
  bind_options(m, "GeometryStep", Keyword{"kind", &Step::kind}, Keyword{"height", &Step::height},
               Keyword{"width", &Step::width}, Keyword{"above", &Step::above},
               Keyword{"left", &Step::left}, Keyword{"below", &Step::below},
               Keyword{"right", &Step::right}, Keyword{"pad_if_needed", &Step::pad_if_needed},
               Keyword{"area", &Step::area}, Keyword{"ratio", &Step::ratio},
               Keyword{"probability", &Step::probability});
  bind_options(m, "ColorStep", Keyword{"kind", &ColorStep::kind},
               Keyword{"probability", &ColorStep::probability},
               Keyword{"number", &ColorStep::number}, Keyword{"brightness", &ColorStep::brightness},
               Keyword{"contrast", &ColorStep::contrast})
      .def_readonly("probability", &ColorStep::probability);
  bind_options(m, "BorderOptions", Keyword{"kind", &BorderOptions::kind},
               Keyword{"fill", &BorderOptions::fill});
  bind_options(m, "AugmentOptions", Keyword{"steps", &AugmentOptions::steps},
               Keyword{"border", &AugmentOptions::border},
               Keyword{"resized_border", &AugmentOptions::resized_border},
               Keyword{"interpolation", &AugmentOptions::interpolation},
               Keyword{"in_floats", &AugmentOptions::in_floats},
               Keyword{"colors", &AugmentOptions::colors});
}

}  // namespace pinfeed::bindings
