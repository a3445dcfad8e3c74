// _core.move_boxes and _core.move_points: transform targets together with a batch of images.
#include "kernels/targets.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "bindings/python/image_crops.h"
#include "bindings/python/options.h"
#include "bindings/python/output.h"

namespace py = pybind11;

namespace pinfeed::bindings {

template <>
struct Names<kernels::BoxFormat> {
  static constexpr std::pair<const char*, kernels::BoxFormat> all[] = {
      {"xyxy", kernels::BoxFormat::xyxy},
      {"xywh", kernels::BoxFormat::xywh},
      {"cxcywh", kernels::BoxFormat::cxcywh}};
};

namespace {

// The output of boxes: the format, pixels or fractions, and the minimum sizes of boxes that remain.
struct BoxOptions {
  kernels::BoxFormat format = kernels::BoxFormat::xyxy;
  bool of_image = false;  // fractions of each image's crop
  bool of_batch = false;  // fractions of the batch's height and width
  double min_size = 1;
  double min_area = 1;
};

// int64 of shape (B + 1,): the offsets of each image's remaining items.
Output write_offsets(const std::int64_t* offsets, std::size_t images, const std::uint8_t* remain,
                     const OutputRequest& request, const std::string& name) {
  Output out = make_output(request, {static_cast<std::int64_t>(images) + 1}, kInt64, name);
  auto* const to = reinterpret_cast<std::int64_t*>(out.data);
  to[0] = 0;
  for (std::size_t i = 0; i < images; ++i) {
    const auto items = std::span(remain + offsets[i], remain + offsets[i + 1]);
    to[i + 1] = to[i] + std::ranges::count_if(items, [](std::uint8_t flag) { return flag != 0; });
  }
  return out;
}

// Whether all numbers are finite.
bool to_corners(Corners boxes, kernels::BoxFormat format) {
  return kernels::to_corners(format, boxes.mutable_data(),
                             static_cast<std::size_t>(boxes.size()) / 4);
}

// Moves the corners of `objects` in place, flags which remain, and returns the remaining boxes as
// float32 of shape (total, 4), with their offsets. `slot`: height and width of the batch.
py::tuple move_boxes(const ImageCrops& crops, const ObjectBoxes& objects, const BoxOptions& options,
                     std::array<double, 2> slot, py::object target, const std::string& name) {
  require_objects(objects, crops.transforms.size(), name);
  auto [corners, offsets, remain] = objects;
  const std::int64_t* const first = offsets.data();
  const std::size_t images = crops.transforms.size();
  double* const boxes = corners.mutable_data();
  std::uint8_t* const flags = flags_of(remain);
  for (std::size_t i = 0; i < images; ++i) {
    kernels::move_boxes(crops.transforms[i], {options.min_size, options.min_area},
                        boxes + 4 * first[i], flags + first[i],
                        static_cast<std::size_t>(first[i + 1] - first[i]));
  }
  const OutputRequest request(std::move(target), true);
  const Output ends = write_offsets(first, images, flags, request, name);
  const std::int64_t total = reinterpret_cast<const std::int64_t*>(ends.data)[images];
  const Output out = make_output(request, {total, 4}, kFloat32, name);
  auto* to = reinterpret_cast<float*>(out.data);
  for (std::size_t i = 0; i < images; ++i) {
    const kernels::Crop& crop = crops.transforms[i].visible();
    std::array<double, 2> unit{1, 1};
    if (options.of_batch) unit = slot;
    if (options.of_image)
      unit = {static_cast<double>(crop.height), static_cast<double>(crop.width)};
    to = kernels::write_boxes(options.format, boxes + 4 * first[i], flags + first[i],
                              static_cast<std::size_t>(first[i + 1] - first[i]), unit[0], unit[1],
                              to);
  }
  return py::make_tuple(out.array, ends.array);
}

// Points of shape (total, ..., 2 or 3), float64, with offsets; returns the remaining ones as
// float32.
py::tuple move_points(const ImageCrops& crops, const Corners& points, const Integers& offsets,
                      const Flags& remain, py::object target, const std::string& name) {
  require_offsets(offsets, crops.transforms.size(), remain.size(), name);
  if (points.ndim() < 2 || points.shape(0) != remain.size() ||
      (points.shape(points.ndim() - 1) != 2 && points.shape(points.ndim() - 1) != 3)) {
    throw wrong_value({name}, "points must have shape (total, ..., 2 or 3), and one flag each");
  }
  const std::int64_t* const first = offsets.data();
  const std::uint8_t* const flags = flags_of(remain);
  const std::size_t images = crops.transforms.size();
  const OutputRequest request(std::move(target), true);
  const Output ends = write_offsets(first, images, flags, request, name);
  Shape shape(points.shape(), points.shape() + points.ndim());
  const auto numbers = static_cast<std::size_t>(shape.back());
  std::size_t item_points = 1;
  for (std::size_t axis = 1; axis + 1 < shape.size(); ++axis) {
    item_points *= static_cast<std::size_t>(shape[axis]);
  }
  shape[0] = reinterpret_cast<const std::int64_t*>(ends.data)[images];
  const Output out = make_output(request, shape, kFloat32, name);
  auto* to = reinterpret_cast<float*>(out.data);
  const std::size_t step = item_points * numbers;
  for (std::size_t i = 0; i < images; ++i) {
    for (std::int64_t item = first[i]; item < first[i + 1]; ++item) {
      if (!flags[item]) continue;
      kernels::move_points(crops.transforms[i],
                           points.data() + static_cast<std::size_t>(item) * step, item_points,
                           numbers, to);
      to += step;
    }
  }
  return py::make_tuple(out.array, ends.array);
}

}  // namespace

void register_targets(py::module_& m) {
  bind_options<BoxOptions, &BoxOptions::format, &BoxOptions::of_image, &BoxOptions::of_batch,
               &BoxOptions::min_size, &BoxOptions::min_area>(m, "BoxOptions");
  m.def("to_corners", &to_corners, py::arg("boxes").noconvert(), py::arg("format"));
  m.def("move_boxes", &move_boxes, py::arg("crops"), py::arg("objects"), py::arg("options"),
        py::arg("slot"), py::arg("target"), py::arg("name"));
  m.def("move_points", &move_points, py::arg("crops"), py::arg("points"), py::arg("offsets"),
        py::arg("remain"), py::arg("target"), py::arg("name"));
}

}  // namespace pinfeed::bindings
