// _core.erase_images: rectangles of the images of a batch that is there.
#include "kernels/erase.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/fill_value.h"
#include "bindings/python/module.h"
#include "bindings/python/parallel.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::Erasing;
using kernels::Fill;
using kernels::ImageLayout;
using Integers = py::array_t<std::int64_t, py::array::c_style>;

// How images are erased, in this order: the probability; the range of the share of the area, and of
// the ratio of height to width; a value for all channels or one for each.
using ErasingFormat =
    std::tuple<double, std::array<double, 2>, std::array<double, 2>, std::vector<py::object>>;

// `batch`: after its first axis one for each letter of `layout`, such as "CHW", "HW" or "CTHW";
// contiguous, of this process. All frames of a sample lose the same rectangle.
void erase_images(const py::object& batch, const std::string& layout, const ErasingFormat& format,
                  std::uint64_t key, const Integers& samples, const std::string& name,
                  std::size_t threads) {
  const auto& [probability, area, ratio, given] = format;
  const ArrayView view = view_array(batch, Subject{name});
  const auto size = [&](char axis) {
    const std::size_t place = layout.find(axis);
    return place == std::string::npos ? 1 : view.shape[1 + place];
  };
  const std::int64_t height = size('H'), width = size('W');
  const auto channels = static_cast<std::size_t>(size('C'));
  const auto frames = static_cast<std::size_t>(size('T'));
  if (given.size() != 1 && given.size() != channels) {
    throw py::value_error(name + ": RandomErasing's value must be one number or one for each of " +
                          std::to_string(channels) + " channels, got " +
                          std::to_string(given.size()));
  }
  std::vector<Fill> values;
  for (std::size_t c = 0; c < channels; ++c) {
    values.push_back(fill_value(given[given.size() == 1 ? 0 : c], view.dtype, name + ": value"));
  }
  if (view.items() == 0) return;
  // The planes of a clip in order, each with its channel's value; or frames of pixels.
  const bool is_packed = layout.back() == 'C';
  std::vector<Fill> of_planes;
  for (std::size_t plane = 0; plane < channels * frames && !is_packed; ++plane) {
    const bool frames_are_inner = layout.starts_with("CT");
    of_planes.push_back(values[frames_are_inner ? plane / frames : plane % channels]);
  }
  const Erasing erasing{probability, area, ratio};
  const auto count = static_cast<std::size_t>(view.shape[0]);
  const std::size_t bytes = static_cast<std::size_t>(view.items()) / count * view.dtype.item_size();
  const std::int64_t* const sample = samples.data();
  run_rows(count, bytes, threads, [&](std::size_t begin, std::size_t end) {
    const auto rows = static_cast<std::size_t>(height), columns = static_cast<std::size_t>(width);
    for (std::size_t i = begin; i < end; ++i) {
      const auto rectangle = kernels::draw_rectangle(erasing, height, width, key, sample[i]);
      std::byte* const image = view.data + i * bytes;
      if (!is_packed) {
        kernels::erase(image, ImageLayout::chw, rows, columns, of_planes, rectangle);
        continue;
      }
      for (std::size_t frame = 0; frame < frames; ++frame) {
        kernels::erase(image + frame * (bytes / frames), ImageLayout::hwc, rows, columns, values,
                       rectangle);
      }
    }
  });
}

}  // namespace

void register_erase(py::module_& m) {
  m.def("erase_images", &erase_images, py::arg("batch"), py::arg("layout"), py::arg("format"),
        py::arg("key"), py::arg("samples"), py::arg("name"), py::arg("threads"));
}

}  // namespace pinfeed::bindings
