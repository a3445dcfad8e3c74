// The images of a batch, as native calls are given them.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/python/output.h"
#include "bindings/python/samples.h"
#include "kernels/image.h"

namespace pinfeed::bindings {

// Which axes of a sample are what; a grey image has no channel axis.
struct ImageAxes {
  const char* text;
  const char* batch_text;
  int height, width, channel;
};

// uint8, with the layout's axes, one number of channels and, unless they may be of any size, one
// size.
class Images {
 public:
  // `layout`: "HWC", "CHW", "HW"; or "HWC?", of which nobody said so.
  //
  // Throws TypeError and ValueError; a message about one image says which.
  Images(pybind11::object images, pybind11::object indices, const std::string& layout,
         bool any_size, const std::string& name);

  const std::string& name() const { return name_; }
  std::size_t count() const { return samples_.count(); }
  std::int64_t channels() const { return size(0, axes_.channel); }
  std::int64_t height(std::size_t image) const { return size(image, axes_.height); }
  std::int64_t width(std::size_t image) const { return size(image, axes_.width); }
  bool is_tensor() const { return samples_.is_tensor(); }
  void require_apart(const Output& out, std::size_t bytes, const std::string& function) const {
    samples_.require_apart(out, bytes, function);
  }
  FileReads* reads() const { return samples_.reads(); }

  // Before sources() are asked for.
  void plan_reads(std::size_t threads) { samples_.plan_reads(false, threads); }

  std::vector<kernels::ImageSource> sources() const;
  std::vector<kernels::ImageSize> sizes() const;

 private:
  std::int64_t size(std::size_t image, int axis) const {
    return axis < 0 ? 1 : samples_.shape(image)[static_cast<std::size_t>(axis)];
  }
  void require_layout() const;
  void require_channels_last() const;
  void require_common(bool any_size) const;

  const std::string& name_;
  ImageAxes axes_;
  Samples samples_;
};

}  // namespace pinfeed::bindings
