// permute of csrc/cuda against items copied one at a time.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/permute_plan.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/run_on_cpu.h"
#include "tests/sample_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::cuda::ImageBatch;
using pinfeed::cuda::ImageLayout;
using pinfeed::cuda::Permutation;

std::string run_work(const Permutation& permutation, Random& random) {
  ImageBatch bytes;
  if (pinfeed::cuda::as_bytes(permutation, bytes)) {
    pinfeed::cuda::visit_image_work<pinfeed::kernels::PixelType::uint8>(
        bytes, [&](const auto& work) { run_on_cpu(work, random); });
    return "bytes";
  }
  const auto visit = [&](const auto& work) { run_on_cpu(work, random); };
  switch (permutation.item_size) {
    case 2:
      pinfeed::cuda::visit_permute_work<2>(permutation, visit);
      break;
    case 4:
      pinfeed::cuda::visit_permute_work<4>(permutation, visit);
      break;
    case 8:
      pinfeed::cuda::visit_permute_work<8>(permutation, visit);
      break;
    default:
      pinfeed::cuda::visit_permute_work<16>(permutation, visit);
  }
  const bool packed = permutation.channel_stride == permutation.item_size;
  return packed ? "pixels" : "planes or others";
}

std::string check(Permutation p, Random& random) {
  const std::int64_t sizes[] = {p.count, p.height, p.width, p.channels};
  const std::int64_t strides[] = {p.image_stride, p.row_stride, p.column_stride, p.channel_stride};
  std::ptrdiff_t lowest = 0, highest = p.item_size - 1;
  const std::int64_t items = p.count * p.height * p.width * p.channels;
  for (int axis = 0; axis < 4 && items > 0; ++axis) {
    const std::ptrdiff_t last = (sizes[axis] - 1) * strides[axis];
    (last < 0 ? lowest : highest) += last;
  }
  const std::int64_t alignment = std::min<std::int64_t>(p.item_size, 8);
  // All bytes from the lowest to the highest are a multiple of the alignment, and so are the ends
  // of the memory; any place between need not be one.
  const std::uint8_t* images = sample_memory().place(lowest, highest, random);
  images -= reinterpret_cast<std::uintptr_t>(images) % static_cast<std::uintptr_t>(alignment);
  p.images = images;
  const auto bytes = static_cast<std::size_t>(items * p.item_size);
  MarkedOutput out(bytes, random() % 8 * static_cast<std::size_t>(alignment));
  p.out = out.data();
  if (!pinfeed::cuda::is_valid(p)) throw std::runtime_error("refused");

  Bytes expected(bytes);
  for (std::int64_t i = 0; i < items; ++i) {
    std::int64_t rest = i, n, y, x, c;
    if (p.layout == ImageLayout::hwc) {
      c = rest % p.channels, rest /= p.channels;
      x = rest % p.width, rest /= p.width;
      y = rest % p.height, n = rest / p.height;
    } else {
      x = rest % p.width, rest /= p.width;
      y = rest % p.height, rest /= p.height;
      c = rest % p.channels, n = rest / p.channels;
    }
    std::memcpy(
        expected.data() + i * p.item_size,
        images + n * p.image_stride + y * p.row_stride + x * p.column_stride + c * p.channel_stride,
        static_cast<std::size_t>(p.item_size));
  }
  const std::string ran = items == 0 ? "none" : run_work(p, random);
  if (!out.equals(expected)) {
    std::string what = ran + ", items of " + std::to_string(p.item_size) +
                       (p.layout == ImageLayout::hwc ? " to hwc" : " to chw");
    throw std::runtime_error(
        what + to_text({p.count, p.height, p.width, p.channels}) + " by " +
        to_text({p.image_stride, p.row_stride, p.column_stride, p.channel_stride}));
  }
  return ran;
}

Permutation contiguous(std::int64_t count, std::int64_t height, std::int64_t width,
                       std::int64_t channels, std::int64_t item_size, bool pixels) {
  Permutation p;
  p.count = count, p.height = height, p.width = width, p.channels = channels;
  p.item_size = item_size;
  p.channel_stride = pixels ? item_size : height * width * item_size;
  p.column_stride = pixels ? channels * item_size : item_size;
  p.row_stride = width * p.column_stride;
  p.image_stride = height * width * channels * item_size;
  return p;
}

void test_transposes() {
  Random random(1);
  constexpr std::int64_t kChannels[] = {1, 2, 3, 4, 5, 16, 31, 32, 33, 64, 65, 100, 257};
  constexpr std::int64_t kSizes[][2] = {{1, 1}, {1, 2},   {3, 5},   {7, 9},
                                        {8, 8}, {31, 33}, {1, 700}, {64, 64}};
  for (const std::int64_t item_size : {1, 2, 4, 8, 16}) {
    for (const std::int64_t channels : kChannels) {
      for (const auto& [height, width] : kSizes) {
        if (channels * height * width * item_size > 400000) continue;
        for (const bool pixels : {false, true}) {
          for (const ImageLayout layout : {ImageLayout::chw, ImageLayout::hwc}) {
            const auto count = static_cast<std::int64_t>(1 + random() % 3);
            Permutation p = contiguous(count, height, width, channels, item_size, pixels);
            p.layout = layout;
            p.image_stride += static_cast<std::int64_t>(random() % 2) * 3 * item_size;
            check(p, random);
          }
        }
      }
    }
  }
}

void test_any_strides() {
  Random random(2);
  constexpr std::int64_t kSome[] = {0, 1, 1, 2, 3, 4, 5, 8, 16, 17, 40};
  for (int repeat = 0; repeat < 3000; ++repeat) {
    Permutation p;
    p.item_size = std::int64_t{1} << random() % 5;
    const auto some = [&] {
      const std::int64_t size = kSome[random() % std::size(kSome)];
      return size == 0 && random() % 4 != 0 ? std::int64_t{2} : size;
    };
    p.count = some() % 6, p.height = some(), p.width = some(), p.channels = some();
    p.layout = random() % 2 == 0 ? ImageLayout::chw : ImageLayout::hwc;
    const Shape shape{p.count, p.height, p.width, p.channels};
    Shape strides = random_strides(shape, static_cast<std::size_t>(p.item_size), random);
    for (std::int64_t& stride : strides) stride -= stride % std::min<std::int64_t>(p.item_size, 8);
    p.image_stride = strides[0], p.row_stride = strides[1];
    p.column_stride = strides[2], p.channel_stride = strides[3];
    if (random() % 3 == 0) {  // gaps between rows, of planes or pixels
      const bool pixels = random() % 2 == 0;
      const auto gap = static_cast<std::int64_t>(random() % 3) * p.item_size;
      p.channel_stride = p.item_size, p.column_stride = p.channels * p.item_size;
      if (!pixels) p.column_stride = p.item_size;
      p.row_stride = p.width * p.column_stride + gap;
      if (!pixels) p.channel_stride = p.height * p.row_stride + gap;
      p.image_stride = pixels ? p.height * p.row_stride : p.channels * p.channel_stride;
    }
    check(p, random);
  }
}

void test_refusals() {
  alignas(16) std::uint8_t memory[64] = {};
  Permutation p = contiguous(1, 2, 2, 2, 4, true);
  p.images = memory, p.out = memory + 32;
  CHECK(pinfeed::cuda::is_valid(p));
  const auto refused = [&](auto change) {
    Permutation changed = p;
    change(changed);
    return !pinfeed::cuda::is_valid(changed);
  };
  CHECK(refused([](auto& q) { q.item_size = 3; }));
  CHECK(refused([](auto& q) { q.item_size = 0; }));
  CHECK(refused([](auto& q) { q.count = -1; }));
  CHECK(refused([](auto& q) { q.images = nullptr; }));
  CHECK(refused([](auto& q) { q.out = nullptr; }));
  CHECK(refused([&](auto& q) { q.images = memory + 2; }));
  CHECK(refused([&](auto& q) { q.out = memory + 33; }));
  CHECK(refused([](auto& q) { q.row_stride = 17; }));
  CHECK(!refused([](auto& q) { q.image_stride = 17; }));  // there is one image
  CHECK(!refused([](auto& q) { q.width = 0, q.images = nullptr, q.out = nullptr; }));
}

}  // namespace

void cuda_permute_tests() {
  run("device permutations: transposes", test_transposes);
  run("device permutations: any strides", test_any_strides);
  run("device permutations: refusals", test_refusals);
}
