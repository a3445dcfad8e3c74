// Pixels of Pillow's images: lent without a copy, or converted while a batch is written.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>

#include "bindings/python/array_view.h"

namespace pinfeed::bindings {

// An image of bytes that can't lend its pixels. It is converted when its turn comes, so that the
// images of a batch reuse the same memory, which stays in the cache.
class LateImage {
 public:
  // `shape`: of the array that NumPy makes of it.
  LateImage(pybind11::object image, Shape shape);

  // All but the pixels: `data` is kNowhere.
  ArrayView view() const;

  // The array. Throws what Pillow throws, and ValueError for another shape than was said.
  pybind11::array read() const;

  static const std::byte kNowhere;

 private:
  pybind11::object image_;
  Shape shape_;
  Shape strides_;
};

}  // namespace pinfeed::bindings
