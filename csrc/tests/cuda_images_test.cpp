// normalize_images of csrc/cuda against the definition in kernels/image.h.
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/image_plan.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/image_case.h"
#include "tests/run_on_cpu.h"

namespace {

using namespace pinfeed::tests;
namespace cuda = pinfeed::cuda;
using pinfeed::kernels::ImageTensor;

// Records which kernels ran, so that a test can't test another one by mistake.
std::string_view name_of(auto* work) {
  const std::string_view name = __PRETTY_FUNCTION__;
  (void)work;
  for (const std::string_view kernel : {"SameOrder", "PixelsToPlanes", "AnyImages"}) {
    if (name.find(kernel) != std::string_view::npos) return kernel;
  }
  return "?";
}

template <PixelType kType>
std::string_view run_type(const ImageTensor& batch, Random& random) {
  std::string_view name = "none";
  cuda::visit_image_work<kType>(batch, [&](const auto& work) {
    CHECK(name == "none");
    name = name_of(&work);
    run_on_cpu(work, random);
  });
  return name;
}

std::string_view run_images(const ImageTensor& batch, Random& random) {
  switch (batch.type) {
    case PixelType::float32:
      return run_type<PixelType::float32>(batch, random);
    case PixelType::float16:
      return run_type<PixelType::float16>(batch, random);
    case PixelType::bfloat16:
      return run_type<PixelType::bfloat16>(batch, random);
    default:
      return run_type<PixelType::uint8>(batch, random);
  }
}

struct Source {
  Strides strides;
  std::ptrdiff_t image_stride;
};

// A batch and everything it points to.
struct DeviceCase {
  ImageCase image;
  Source source;
  std::size_t alignment = 1;  // of the source's first byte
};

ImageCase image_case(const char* what, std::size_t height, std::size_t width, std::size_t channels,
                     ImageLayout layout, PixelType type, Random& random) {
  return {what, {}, height, width, channels, layout, type, random()};
}

// Runs it, compares, and returns the kernel's name.
std::string_view check(DeviceCase test, std::size_t count, Random& random) {
  ImageCase& image = test.image;
  const Source& source = test.source;
  const auto [_, row, column, channel] = source.strides;
  const std::int64_t shape[] = {
      static_cast<std::int64_t>(count), static_cast<std::int64_t>(image.height),
      static_cast<std::int64_t>(image.width), static_cast<std::int64_t>(image.channels)};
  const std::int64_t strides[] = {source.image_stride, row, column, channel};
  // With bytes to spare, to find a multiple of the alignment in.
  const std::uint8_t* images = source_memory().place(shape, strides, test.alignment, random);
  images += -reinterpret_cast<std::uintptr_t>(images) % test.alignment;
  for (std::size_t i = 0; i < count; ++i) {
    image.sources.push_back(
        {images + static_cast<std::ptrdiff_t>(i) * source.image_stride, row, column, channel});
  }

  std::vector<float> scale(image.channels), bias(image.channels);
  for (std::size_t c = 0; c < image.channels; ++c) {
    scale[c] = constants().scale(image.first_pair + c);
    bias[c] = constants().bias(image.first_pair + c);
  }
  MarkedOutput out(image.bytes(), 0);

  ImageTensor batch;
  batch.images = images;
  batch.image_stride = source.image_stride;
  batch.row_stride = row;
  batch.column_stride = column;
  batch.channel_stride = channel;
  batch.count = shape[0];
  batch.height = shape[1];
  batch.width = shape[2];
  batch.channels = shape[3];
  if (image.type != PixelType::uint8) batch.scale = scale.data(), batch.bias = bias.data();
  batch.out = out.data();
  batch.layout = image.layout;
  batch.type = image.type;

  const std::string_view name = image.bytes() == 0 ? "none" : run_images(batch, random);
  std::vector<std::byte> expected(image.bytes());
  define(image, 0, image.rows(), expected.data());
  if (!out.equals(expected)) throw std::runtime_error(image.describe(name.data()));
  return name;
}

Strides pixels(std::size_t width, std::size_t channels, std::size_t gap = 0) {
  const auto c = static_cast<std::ptrdiff_t>(channels);
  return {"pixels", static_cast<std::ptrdiff_t>(width + gap) * c, c, 1};
}

Strides planes(std::size_t height, std::size_t width, std::size_t gap = 0) {
  const auto row = static_cast<std::ptrdiff_t>(width + gap);
  return {"planes", row, 1, static_cast<std::ptrdiff_t>(height) * row};
}

// Inputs of the fast kernels, in sizes around their groups and tiles, and whether these run.
void test_fast_kernels() {
  Random random(1);
  constexpr std::size_t kSizes[][2] = {{1, 16},  {4, 4},   {16, 16}, {7, 16},  {3, 48},
                                       {32, 32}, {20, 64}, {64, 80}, {1, 4096}};
  for (const auto& [height, width] : kSizes) {
    for (const std::size_t channels : {1, 3, 4}) {
      for (const PixelType type : kTypes) {
        for (const ImageLayout layout : kLayouts) {
          for (const bool packed : {false, true}) {
            for (const std::size_t gap : {0, 16}) {
              if (gap != 0 && width % 16 != 0) continue;  // rows that are not whole groups
              const Strides strides =
                  packed ? pixels(width, channels, gap) : planes(height, width, gap);
              const std::size_t count = 1 + random() % 4;
              const auto bytes = static_cast<std::ptrdiff_t>(height * (width + gap) * channels);
              DeviceCase test{image_case("fast", height, width, channels, layout, type, random),
                              {strides, bytes}};
              test.alignment = 16;
              const std::string_view name = check(test, count, random);
              const bool is_hwc = layout == ImageLayout::hwc;
              const std::string_view expected = channels == 1 || packed == is_hwc ? "SameOrder"
                                                : packed                          ? "PixelsToPlanes"
                                                                                  : "AnyImages";
              if (name != expected) {
                throw std::runtime_error(test.image.describe("ran ") + std::string(name) +
                                         " in place of " + std::string(expected));
              }
            }
          }
        }
      }
    }
  }
}

// Any memory layout, with or without gaps between images, any alignment, any number of channels.
void test_anything() {
  Random random(2);
  constexpr std::size_t kSome[] = {1, 2, 3, 4, 5, 8, 9, 16, 16, 17, 31, 32, 32, 33, 48, 64};
  std::map<std::string_view, int> ran;
  for (int repeat = 0; repeat < 6000; ++repeat) {
    const std::size_t channels =
        random() % 20 == 0 ? 125 + random() % 4 : kChannels[random() % std::size(kChannels)];
    std::size_t height = kSome[random() % std::size(kSome)];
    std::size_t width = kSome[random() % std::size(kSome)];
    if (channels > 5) height = 1 + height % 5;
    ImageCase image = image_case("anything", height, width, channels, kLayouts[random() % 2],
                                 kTypes[random() % 4], random);
    if (random() % 100 == 0) (random() % 2 == 0 ? image.height : image.width) = 0;
    const std::vector<Strides> all = all_strides(image.height, image.width, channels);
    const std::size_t count = random() % 5;
    Source source{all[random() % 3 == 0 ? 0 : random() % 2 == 0 ? 15 : random() % all.size()], 0};
    source.image_stride = random() % 4 == 0
                              ? static_cast<std::ptrdiff_t>(random() % 4000) - 2000
                              : static_cast<std::ptrdiff_t>(height * width * channels);
    DeviceCase test{image, source};
    if (random() % 2 == 0) test.alignment = 16;
    ++ran[check(test, count, random)];
  }
  for (const char* kernel : {"SameOrder", "PixelsToPlanes", "AnyImages"}) {
    CHECK(ran[kernel] > 20);
  }
}

// Every byte value under many constants, by each kernel.
void test_every_value() {
  Random random(3);
  for (const PixelType type : kTypes) {
    for (const ImageLayout layout : kLayouts) {
      for (const std::size_t channels : {1, 3, 4, 5}) {
        for (const bool packed : {false, true}) {
          for (int repeat = 0; repeat < 40; ++repeat) {
            DeviceCase test{image_case("values", 32, 32, channels, layout, type, random),
                            {packed ? pixels(32, channels) : planes(32, 32),
                             static_cast<std::ptrdiff_t>(1024 * channels)}};
            test.alignment = 16;
            check(test, 2, random);
          }
        }
      }
    }
  }
}

}  // namespace

void cuda_images_tests() {
  run("device images: the fast kernels", test_fast_kernels);
  run("device images: anything", test_anything);
  run("device images: every value", test_every_value);
}
