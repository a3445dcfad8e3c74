// _core.erase_images: erases rectangles of the images of an existing batch.
#include "kernels/erase.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/options.h"
#include "bindings/python/parallel.h"
#include "bindings/python/scalar_types.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using Integers = py::array_t<std::int64_t, py::array::c_style>;

// The options of erasing.
struct ErasingOptions {
  double probability = 0;
  std::array<double, 2> area{};   // range of the fraction of the image's area
  std::array<double, 2> ratio{};  // range of height / width
  // A list of one value for all channels or one per channel, or an array of the batch's dtype with
  // 2^16 values to choose from.
  py::object values = py::none();
};

// `batch`: its axes after the first are the letters of `layout`, such as "CHW", "HW" or "CTHW". All
// frames of a sample lose the same rectangle.
void erase_images(const py::object& batch, const std::string& layout, const ErasingOptions& options,
                  std::uint64_t key, const Integers& samples, const std::string& name,
                  std::size_t threads) {
  const ArrayView view = view_array(batch, Subject{name});
  const std::size_t item = view.dtype.item_size();
  const auto size = [&](char axis) {
    const std::size_t position = layout.find(axis);
    return position == std::string::npos ? 1 : view.shape[1 + position];
  };
  const auto stride = [&](char axis) {
    const std::size_t position = layout.find(axis);
    return position == std::string::npos ? 0 : static_cast<std::size_t>(view.stride(1 + position));
  };
  std::string letters = layout;
  std::ranges::sort(letters);
  if (view.axes() != 1 + layout.size() || letters.find_first_not_of("CHTW") != std::string::npos ||
      std::ranges::adjacent_find(letters) != letters.end()) {
    throw wrong_value({name}, "a batch with axes N" + layout, shape_text(view.shape));
  }
  if (!view.writable) throw wrong_value({name}, "a writable batch", "a read-only array");
  if (samples.size() != view.shape[0]) {
    throw wrong_value({name}, "expected one sample number per sample");
  }
  const std::int64_t height = size('H'), width = size('W'), channels = size('C');
  // A row of a rectangle is written as a run of pixels, or as a run per channel.
  const auto item_stride = static_cast<std::int64_t>(item);
  const bool are_pixels =
      (channels == 1 || static_cast<std::int64_t>(stride('C')) == item_stride) &&
      static_cast<std::int64_t>(stride('W')) == channels * item_stride;
  if (width > 1 && !are_pixels && static_cast<std::int64_t>(stride('W')) != item_stride) {
    throw wrong_value({name}, "expected a batch with adjacent pixels");
  }
  std::vector<std::uint8_t> constants;
  kernels::ErasingValues values{};
  if (py::isinstance<py::list>(options.values)) {
    constants = fill_pixel(options.values, view.dtype, channels, name + ": RandomErasing's value");
    values = {constants.data(), false};
  } else {
    const ArrayView choice = view_array(options.values, Subject{name});
    constexpr std::int64_t kValues = 1 << 16;
    if (choice.dtype != view.dtype || !choice.contiguous() || choice.items() != kValues) {
      throw wrong_value({name}, "expected 2**16 values of the batch's dtype");
    }
    values = {choice.data, true};
  }
  if (view.items() == 0) return;
  const kernels::Erasing erasing{options.probability, options.area, options.ratio};
  const auto count = static_cast<std::size_t>(view.shape[0]);
  const std::size_t bytes = static_cast<std::size_t>(view.items()) / count * item;
  const std::int64_t step = view.stride(0);
  const kernels::ImagePlaces first{.data = view.data,
                                   .item_size = item,
                                   .frames = static_cast<std::size_t>(size('T')),
                                   .channels = static_cast<std::size_t>(channels),
                                   .frame_stride = stride('T'),
                                   .channel_stride = stride('C'),
                                   .row_stride = stride('H'),
                                   .column_stride = stride('W')};
  const std::int64_t* const sample = samples.data();
  const auto erase = [&](std::size_t begin, std::size_t end) {
    kernels::ImagePlaces image = first;
    for (std::size_t i = begin; i < end; ++i) {
      image.data = view.data + static_cast<std::int64_t>(i) * step;
      kernels::erase(image, values, kernels::draw_rectangle(erasing, height, width, key, sample[i]),
                     key, sample[i]);
    }
  };
  run_rows(count, bytes, threads, erase);
}

}  // namespace

void register_erase(py::module_& m) {
  bind_options<ErasingOptions, &ErasingOptions::probability, &ErasingOptions::area,
               &ErasingOptions::ratio, &ErasingOptions::values>(m, "ErasingOptions");
  m.def("erase_images", &erase_images, py::arg("batch"), py::arg("layout"), py::arg("options"),
        py::arg("key"), py::arg("samples"), py::arg("name"), py::arg("threads"));
}

}  // namespace pinfeed::bindings
