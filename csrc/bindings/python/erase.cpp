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

// `batch`: (B, C, H, W) with layout "CHW", (B, H, W, C) with "HWC"; contiguous, of this process.
void erase_images(const py::object& batch, const std::string& layout, const ErasingFormat& format,
                  std::uint64_t key, const Integers& samples, const std::string& name,
                  std::size_t threads) {
  const auto& [probability, area, ratio, given] = format;
  const ArrayView view = view_array(batch, Subject{name});
  const bool is_chw = layout == "CHW";
  const std::int64_t height = view.shape[is_chw ? 2 : 1], width = view.shape[is_chw ? 3 : 2];
  const auto channels = static_cast<std::size_t>(view.shape[is_chw ? 1 : 3]);
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
  const Erasing erasing{probability, area, ratio};
  const auto count = static_cast<std::size_t>(view.shape[0]);
  const std::size_t bytes = static_cast<std::size_t>(view.items()) / count * view.dtype.item_size();
  const std::int64_t* const sample = samples.data();
  run_rows(count, bytes, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      kernels::erase(view.data + i * bytes, is_chw ? ImageLayout::chw : ImageLayout::hwc,
                     static_cast<std::size_t>(height), static_cast<std::size_t>(width), values,
                     kernels::draw_rectangle(erasing, height, width, key, sample[i]));
    }
  });
}

}  // namespace

void register_erase(py::module_& m) {
  m.def("erase_images", &erase_images, py::arg("batch"), py::arg("layout"), py::arg("format"),
        py::arg("key"), py::arg("samples"), py::arg("name"), py::arg("threads"));
}

}  // namespace pinfeed::bindings
