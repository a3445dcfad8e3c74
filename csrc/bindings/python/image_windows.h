// Crops and flips of the images of a batch.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/python/image_samples.h"
#include "kernels/geometry.h"
#include "kernels/image.h"

namespace pinfeed::bindings {

// What is seen of each image, in this order: the crops and flips; what stands beyond the image's
// edges; for a constant border a value for all channels or one for each; the key and the samples
// that random numbers follow from; None, or the sizes of the images of another leaf, which must be
// the same, and its name; and whether the windows are wanted.
using Integers = pybind11::array_t<std::int64_t, pybind11::array::c_style>;
using Crop = std::tuple<pybind11::tuple, std::string, std::vector<std::uint8_t>, std::uint64_t,
                        Integers, std::optional<std::tuple<Integers, std::string>>, bool>;

// The windows of a batch's images, all of one size.
class Windows {
 public:
  // Throws ValueError; a message about one image says which.
  Windows(const Images& images, const Crop& crop);

  std::int64_t height() const { return windows_[0].height; }
  std::int64_t width() const { return windows_[0].width; }
  pybind11::object sizes() const { return sizes_; }

  // float64 of shape (B, 6): top, left, height and width of what is seen of each image, in its own
  // pixels; 1 or 0 for mirrored top to bottom; the same for left to right.
  pybind11::object write(const OutputRequest& request) const;

  // Makes windows of the images that lie there.
  void apply(std::vector<kernels::ImageSource>& sources);

 private:
  [[noreturn]] void fail(std::size_t image, const std::string& text) const;
  void require_sizes(const Integers& others, const std::string& leaf) const;
  void require_fit(std::size_t image, kernels::Misfit misfit) const;

  const Images& images_;
  kernels::Border border_;
  std::vector<std::uint8_t> fill_;
  Integers sizes_;
  std::vector<kernels::Window> windows_;
  std::vector<kernels::ImageWindow> beyond_;
};

}  // namespace pinfeed::bindings
