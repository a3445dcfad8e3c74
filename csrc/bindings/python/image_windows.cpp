#include "bindings/python/image_windows.h"

#include <array>

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::Border;
using kernels::GeometryStep;
using kernels::ImageSource;
using kernels::ImageWindow;
using kernels::Misfit;
using kernels::Window;

// A step: its kind, height and width, the padding above, left, below, right, whether it pads what
// is too small, its probability.
GeometryStep geometry_step(py::handle given) {
  using Kind = GeometryStep::Kind;
  using Fields = std::tuple<std::string, std::array<std::int64_t, 2>, std::array<std::int64_t, 4>,
                            bool, double>;
  const auto [name, size, padding, pad_if_needed, probability] = given.cast<Fields>();
  const Kind kind = name == "random_crop"   ? Kind::random_crop
                    : name == "center_crop" ? Kind::center_crop
                    : name == "flip_rows"   ? Kind::flip_rows
                                            : Kind::flip_columns;
  return {kind,       size[0],    size[1],       padding[0], padding[1],
          padding[2], padding[3], pad_if_needed, probability};
}

Border border_named(const std::string& name) {
  if (name == "constant") return Border::constant;
  if (name == "edge") return Border::edge;
  if (name == "reflect") return Border::reflect;
  throw py::value_error("unknown border " + name);
}

std::string pair_text(std::int64_t first, std::int64_t second) {
  const std::int64_t pair[] = {first, second};
  return shape_text(pair);
}

}  // namespace

Windows::Windows(const Images& images, const Crop& crop) : images_(images) {
  const auto& [steps, border, fill, key, samples, other_leaf, is_wanted] = crop;
  border_ = border_named(border);
  const auto channels = static_cast<std::size_t>(images.channels());
  fill_ = fill.size() == 1 ? std::vector<std::uint8_t>(channels, fill[0]) : fill;
  if (fill_.size() != channels) {
    throw py::value_error(images.name() + ": fill must be one number or one for each of " +
                          std::to_string(channels) + " channels, got " +
                          std::to_string(fill.size()));
  }
  if (static_cast<std::size_t>(samples.size()) != images.count()) {
    throw py::value_error(images.name() + ": expected a number for each sample");
  }
  sizes_ = Integers(std::vector<py::ssize_t>{samples.size(), 2});
  for (std::size_t i = 0; i < images.count(); ++i) {
    sizes_.mutable_data()[2 * i] = images.height(i);
    sizes_.mutable_data()[2 * i + 1] = images.width(i);
  }
  if (other_leaf) require_sizes(std::get<0>(*other_leaf), std::get<1>(*other_leaf));
  std::vector<GeometryStep> geometry;
  for (const py::handle step : steps) geometry.push_back(geometry_step(step));
  windows_.resize(images.count());
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    require_fit(i, kernels::find_window(geometry, border_, images.height(i), images.width(i), key,
                                        samples.data()[i], windows_[i]));
  }
}

void Windows::apply(std::vector<ImageSource>& sources) {
  beyond_.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    ImageSource& source = sources[i];
    const std::int64_t rows = images_.height(i), columns = images_.width(i);
    auto [top, left, height, width, flipped_rows, flipped_columns] = windows_[i];
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
                                                        static_cast<std::size_t>(columns), border_,
                                                        fill_.data()});
    }
  }
}

py::object Windows::write(const OutputRequest& request) const {
  const Shape shape{static_cast<std::int64_t>(windows_.size()), 6};
  const Output out = make_output(request, shape, kFloat64, images_.name());
  auto* to = reinterpret_cast<double*>(out.data);
  for (const Window& window : windows_) {
    for (const std::int64_t number : {window.top, window.left, window.height, window.width}) {
      *to++ = static_cast<double>(number);
    }
    *to++ = window.flipped_rows;
    *to++ = window.flipped_columns;
  }
  return out.array;
}

void Windows::fail(std::size_t image, const std::string& text) const {
  const auto position = static_cast<std::int64_t>(image);
  throw py::value_error(Subject{images_.name(), position}.text() + ": " + text);
}

// A window is shared by images that lie upon each other.
void Windows::require_sizes(const Integers& others, const std::string& leaf) const {
  for (std::size_t i = 0; others.size() == sizes_.size() && i < images_.count(); ++i) {
    const std::int64_t* const other = others.data() + 2 * i;
    if (other[0] == images_.height(i) && other[1] == images_.width(i)) continue;
    fail(i, "expected an image of " + pair_text(other[0], other[1]) + " as in " + leaf +
                ", with which it shares augment, got " +
                pair_text(images_.height(i), images_.width(i)) +
                "; where images don't belong together, make a second geometry");
  }
}

void Windows::require_fit(std::size_t image, Misfit misfit) const {
  const std::string subject =
      "an image of " + pair_text(images_.height(image), images_.width(image));
  if (misfit == Misfit::too_small) {
    fail(image, subject + " is too small for RandomCrop; pass pad_if_needed=True, or more padding");
  }
  if (misfit == Misfit::no_pixels) {
    fail(image, subject + " has no pixel that could be repeated; take padding_mode=\"constant\"");
  }
  if (misfit == Misfit::too_few_to_mirror) {
    fail(image, subject +
                    " has too few pixels for padding_mode=\"reflect\", which adds at most "
                    "one less than there are; take padding_mode=\"edge\"");
  }
  const Window& window = windows_[image];
  if (window.height != height() || window.width != width()) {
    fail(image, "expected images of one size, or a crop to one, got " +
                    pair_text(height(), width()) + " of sample 0 and " +
                    pair_text(window.height, window.width));
  }
}

}  // namespace pinfeed::bindings
