// Pixels of Pillow's images: exported without a copy, or converted while a batch is written.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>

#include "bindings/python/array_view.h"

namespace pinfeed::bindings {

// An image of bytes that can't export its pixels. Images are converted one at a time, so that they
// reuse the same memory, which stays in the cache.
class LateImage {
 public:
  // `shape`: of np.asarray(image).
  LateImage(pybind11::object image, Shape shape);

  // Everything except the pixels: `data` is kNowhere.
  ArrayView view() const;

  // The array. Throws Pillow's exceptions, and ValueError if the shape differs from the declared
  // one.
  pybind11::array read() const;

  static const std::byte kNowhere;

 private:
  pybind11::object image_;
  Shape shape_;
  Shape strides_;
};

}  // namespace pinfeed::bindings
