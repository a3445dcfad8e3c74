// The images of a batch as passed to native calls, and their conversion.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python/file_array.h"
#include "bindings/python/output.h"
#include "bindings/python/samples.h"
#include "kernels/image.h"

namespace pinfeed::bindings {

using Constants = pybind11::array_t<double, pybind11::array::c_style>;

// The format options that a field passes once.
struct ImageFormat {
  Constants mean{0};  // one for all channels, or one per channel
  Constants std{0};
  std::optional<double> scale;  // none: the default of the images' dtype
  std::string input;            // a letter per axis of an image
  bool is_guess = false;        // a default: masks may have a channel axis of size 1
  std::string output;           // a letter per axis of the output
  std::string dtype;            // of the output
  bool remembers = false;       // keep `has_depth` between the batches of a field
  // Whether 16-bit values over 255 were seen: then a dark batch is not mistaken for bytes.
  std::shared_ptr<std::atomic<bool>> has_depth = std::make_shared<std::atomic<bool>>(false);
};

DType out_dtype(const ImageFormat& format);
kernels::PixelType pixel_type(DType dtype);

// The kernels' type for the items of images. Integers that become integers of the same size are
// copied.
kernels::ScalarType item_type(DType from, DType to);

// The kernels' constants: computed as double, rounded once.
struct Scaling {
  std::vector<float> scales, biases;

  // Throws ValueError unless the number of constants is 1 or the number of channels.
  Scaling(const ImageFormat& format, DType dtype, std::int64_t channels, const std::string& name);

  bool is_identity() const;
};

// The position of each axis of a sample, or -1: gray images have no channels, and only clips have
// frames.
struct ImageAxes {
  explicit ImageAxes(const std::string& layout);

  std::string letters;  // of the axes in order
  int frame, height, width, channel;
};

// Images or clips with the axes of the layout, one number of channels and of frames and, unless
// sizes may differ, one size.
class Images {
 public:
  // Throws TypeError and ValueError; a message about one image names its number.
  Images(pybind11::object images, pybind11::object indices, const ImageFormat& format,
         bool any_size, const std::string& name);

  const std::string& name() const { return name_; }
  std::size_t count() const { return samples_.count(); }
  DType dtype() const;                          // uint8 for bools that become integers
  std::string first_channels(int count) const;  // in NumPy's slice syntax
  bool are_colors() const;                      // uint8, and become uint8 or floats
  bool become_floats() const;                   // or stay floats
  std::int64_t channels() const { return size(0, axes_.channel); }
  std::int64_t frames() const { return size(0, axes_.frame); }
  std::int64_t height(std::size_t image) const { return size(image, axes_.height); }
  std::int64_t width(std::size_t image) const { return size(image, axes_.width); }
  bool is_tensor() const { return samples_.is_tensor(); }
  void require_apart(const Output& out, std::size_t bytes, const std::string& function) const {
    samples_.require_apart(out, bytes, function);
  }

  // Throws ValueError if the values of some rows don't have the format's unit.
  void require_units(const ImageFormat& format) const;

  // Throws ValueError without images. Only an array of all rows may be empty.
  void require_some() const;

  // Throws ValueError if integers that were cast to `to` without a scale have become infinite.
  void require_finite(const Scaling& scaling, DType to, const std::byte* out,
                      std::size_t bytes) const;

  // Call before sources().
  void plan_reads(std::size_t threads) { samples_.plan_reads(false, threads); }

  // Converts late images [begin, end), and sets their pixel addresses while the result lives.
  std::vector<pybind11::array> read_late(std::size_t begin, std::size_t end,
                                         std::vector<kernels::ImageSource>& sources) const;

  // Calls write(begin, end), which may run out of memory, over all images, or over `rows`. Late
  // images are converted one at a time per thread.
  template <class Write>
  void write_when_read(std::size_t count, std::size_t threads, const std::string& function,
                       const Write& write) const {
    const std::size_t step = samples_.are_late() ? std::max<std::size_t>(threads, 1) : count;
    try {
      if (samples_.reads() == nullptr) {
        for (std::size_t i = 0; i < count; i += step) write(i, std::min(i + step, count));
        return;
      }
      bindings::write_when_read(samples_.reads(), count, threads, write);
    } catch (const std::bad_alloc&) {
      raise_no_memory(function, "temporary buffers");
    }
  }

  std::vector<kernels::ImageSource> sources() const;  // one per frame
  kernels::ImageSize size_of(std::size_t image) const {
    return {static_cast<std::size_t>(height(image)), static_cast<std::size_t>(width(image))};
  }
  std::vector<kernels::ImageSize> sizes() const;

 private:
  std::int64_t size(std::size_t image, int axis) const {
    return axis < 0 ? 1 : samples_.shape(image)[static_cast<std::size_t>(axis)];
  }
  void require_dtype() const;
  void require_layout() const;
  Subject subject() const;
  std::string layout() const;
  std::string got() const;
  void require_channels_last() const;
  void require_common(bool any_size) const;
  void require_constants(const ImageFormat& format) const;
  void require_fractions() const;
  void require_depth(const ImageFormat& format) const;
  struct Range {
    float min = 0, max = 0;
  };
  Range range_in_some_rows(std::size_t image) const;

  const std::string& name_;
  DType out_;
  ImageAxes axes_;
  bool are_chosen_;  // from more images, by indices
  Samples samples_;
};

}  // namespace pinfeed::bindings
