// The ops for tensors on a CUDA device: sets the current device, launches on torch's current
// stream, and reports CUDA's errors.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <optional>

#include "bindings/torch/ops.h"
#include "cuda/launches.h"

namespace pinfeed::torch_ops {
namespace {

using kernels::ImageLayout;

using GetStream = AOTITorchError (*)(std::int32_t device_index, void** stream);

// Part of torch's C shim, in a library that torch for CPUs lacks.
GetStream find_get_stream() {
  constexpr char kName[] = "aoti_torch_get_current_cuda_stream";
  void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  void* const symbol = dlsym(library != nullptr ? library : RTLD_DEFAULT, kName);
  if (symbol == nullptr) {
    throw std::runtime_error(text("pinfeed: torch's CUDA library has no ", kName));
  }
  return reinterpret_cast<GetStream>(symbol);
}

cudaStream_t current_stream(std::int32_t device_index) {
  static const GetStream get_stream = find_get_stream();
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(get_stream(device_index, &stream));
  return static_cast<cudaStream_t>(stream);
}

const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return "; the driver is older than the CUDA that pinfeed was built with: update it, or build "
             "pinfeed with an older nvcc";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; pinfeed was built for other GPUs: build it on this machine, or with "
             "CMAKE_CUDA_ARCHITECTURES=native";
    default:
      return "";
  }
}

// CUDA's error, and how to fix it.
std::string error_text(cudaError_t error) {
  return text("CUDA says ", cudaGetErrorString(error), advice(error));
}

// Makes a tensor's device current during its lifetime.
class Launch {
 public:
  explicit Launch(const Tensor& tensor) {
    const std::int32_t device = tensor.get_device_index();
    if (torch::stable::accelerator::getCurrentDeviceIndex() != device) guard_.emplace(device);
    stream_ = current_stream(device);
  }

  cudaStream_t stream() const { return stream_; }

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  cudaStream_t stream_;
};

// Throws std::runtime_error for a CUDA error, with a fix.
void check_launch(cudaError_t error, const char* function) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next call would report it again
  throw std::runtime_error(text(function, ": ", error_text(error)));
}

void normalize_on_cuda(const NormalizeCall& call) {
  if (call.bytes == 0) return;
  if (call.batch.scale != nullptr && call.batch.channels > cuda::kMaxChannels) {
    fail("normalize_images: images on a CUDA device must have at most ", cuda::kMaxChannels,
         " channels, got ", call.batch.channels, "; pass their parts, or normalize on the CPU");
  }
  const Launch launch(call.images);
  check_launch(cuda::normalize_images(call.batch, launch.stream()), "normalize_images");
}

void pad_on_cuda(const PadCall& call) {
  const Launch launch(call.in);
  check_launch(cuda::pad_jagged(call.batch, launch.stream()), "pad_jagged");
}

void unpad_on_cuda(const UnpadCall& call) {
  if (call.bytes == 0) return;
  const Launch launch(call.in);
  check_launch(cuda::unpad_to_jagged(call.batch, launch.stream()), "unpad_to_jagged");
}

// Bytes of pixels to planes or back.
void permute_pixels(const PermuteCall& call, ImageLayout layout) {
  // The output's axes.
  const bool chw = layout == ImageLayout::chw;
  const std::size_t height = chw ? 2 : 1, width = chw ? 3 : 2, channel = chw ? 1 : 3;
  const Shape &shape = call.shape, &strides = call.strides;
  const Launch launch(call.images);
  const kernels::ImageTensor batch{
      .images = static_cast<const std::uint8_t*>(call.images.const_data_ptr()),
      .image_stride = strides[0],
      .row_stride = strides[height],
      .column_stride = strides[width],
      .channel_stride = strides[channel],
      .count = shape[0],
      .height = shape[height],
      .width = shape[width],
      .channels = shape[channel],
      .out = call.out.mutable_data_ptr(),
      .layout = layout,
      .type = kernels::PixelType::uint8};
  check_launch(cuda::normalize_images(batch, launch.stream()), "permute");
}

// torch copies larger items, and other orders and numbers of axes.
void permute_with_torch(const PermuteCall& call) {
  AtenTensorHandle view = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_as_strided(call.images.get(), call.shape.data(), call.strides.data(), &view));
  Tensor out = call.out;
  torch::stable::copy_(out, Tensor(view));
}

void permute_on_cuda(const PermuteCall& call) {
  if (call.bytes == 0) return;
  if (call.item_size == 1 && call.order == Shape{0, 3, 1, 2}) {
    permute_pixels(call, ImageLayout::chw);
  } else if (call.item_size == 1 && call.order == Shape{0, 2, 3, 1}) {
    permute_pixels(call, ImageLayout::hwc);
  } else {
    permute_with_torch(call);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CUDA, m) {
  m.impl("normalize_images", TORCH_BOX((&Op<check_images, normalize_on_cuda>::run)));
  m.impl("permute", TORCH_BOX((&Op<check_permute, permute_on_cuda>::run)));
  m.impl("pad_jagged", TORCH_BOX((&Op<check_pad, pad_on_cuda>::run)));
  m.impl("unpad_to_jagged", TORCH_BOX((&Op<check_unpad, unpad_on_cuda>::run)));
}

}  // namespace pinfeed::torch_ops

// Python calls this before it chooses the kernels over torch's own operations. Returns why the
// current device can't run them, and a fix, or null if it can. The text is valid until the thread's
// next call.
extern "C" __attribute__((visibility("default"))) const char* pinfeed_cuda_problem() {
  const cudaError_t error = pinfeed::cuda::check_current_device();
  if (error == cudaSuccess) return nullptr;
  thread_local std::string text;
  text = pinfeed::torch_ops::error_text(error);
  return text.c_str();
}
