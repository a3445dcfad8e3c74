// torch.ops.pinfeed.normalize_images: what both kinds of device have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/tensors.h"
#include "kernels/image.h"

namespace pinfeed::torch_ops {

using kernels::ImageLayout;
using kernels::PixelType;

// The arguments as torch hands them over.
struct ImageArguments {
  const Tensor& images;
  const std::optional<std::vector<double>>& mean;
  const std::optional<std::vector<double>>& std;
  double scale;
  const std::string& input;
  const std::string& output;
  std::optional<ScalarType> dtype;
  bool channels_last;
  const std::optional<Tensor>& indices;
  const std::optional<Tensor>& sizes;
  std::optional<std::int64_t> height;
  std::optional<std::int64_t> width;
  std::optional<double> pad_value;
};

// A checked batch: `count` places of height x width, and the source images that go there. Numbers
// inside `indices` and `sizes` are checked on the CPU only: elsewhere that would mean to wait.
struct ImageBatch {
  Tensor images;
  std::int64_t source_count = 0, source_height = 0, source_width = 0, channels = 0;
  // In bytes.
  std::int64_t image_stride = 0, row_stride = 0, column_stride = 0, channel_stride = 0;
  std::optional<Tensor> indices = {};  // (count,)
  std::optional<Tensor> sizes = {};    // (count, 2)
  std::int64_t count = 0, height = 0, width = 0;
  std::vector<float> scale = {}, bias = {};  // a value for each channel
  Item fill = {};
  PixelType type = PixelType::float32;
  Tensor out;
  ImageLayout layout = ImageLayout::chw;  // of `out` in memory
  std::int64_t bytes = 0;                 // of `out`

  bool is_padded() const { return sizes || height != source_height || width != source_width; }
};

// Checks everything, then makes the output, or takes `out`. Writes nothing.
ImageBatch check_images(const ImageArguments& arguments, DeviceKind kind, const Tensor* out);

// The op and its overload `out`, for a kind of device and what writes its batches; that gets empty
// ones, too, for the numbers inside `indices` and `sizes` are checked there.
template <DeviceKind kind, void (*write)(const ImageBatch&)>
Tensor normalize_images(const Tensor& images, const std::optional<std::vector<double>>& mean,
                        const std::optional<std::vector<double>>& std, double scale,
                        const std::string& input, const std::string& output,
                        std::optional<ScalarType> dtype, bool channels_last,
                        const std::optional<Tensor>& indices, const std::optional<Tensor>& sizes,
                        std::optional<std::int64_t> height, std::optional<std::int64_t> width,
                        std::optional<double> pad_value) {
  const ImageBatch batch = check_images({images, mean, std, scale, input, output, dtype,
                                         channels_last, indices, sizes, height, width, pad_value},
                                        kind, nullptr);
  write(batch);
  return batch.out;
}

template <DeviceKind kind, void (*write)(const ImageBatch&)>
void normalize_images_out(const Tensor& images, const std::optional<std::vector<double>>& mean,
                          const std::optional<std::vector<double>>& std, double scale,
                          const std::string& input, const std::string& output,
                          std::optional<ScalarType> dtype, const std::optional<Tensor>& indices,
                          const std::optional<Tensor>& sizes, std::optional<std::int64_t> height,
                          std::optional<std::int64_t> width, std::optional<double> pad_value,
                          const Tensor& out) {
  const ImageBatch batch = check_images({images, mean, std, scale, input, output, dtype, false,
                                         indices, sizes, height, width, pad_value},
                                        kind, &out);
  write(batch);
}

}  // namespace pinfeed::torch_ops
