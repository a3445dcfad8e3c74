// Color changes of existing images: saturation, and the mean of gray.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/resize.h"
#include "tests/check.h"
#include "tests/every_isa.h"
#include "tests/guarded_memory.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::dispatch::Isa;
using pinfeed::kernels::kRunSlack;
using pinfeed::kernels::Saturation;

std::uint64_t gray(const std::uint8_t* pixel) {
  const float red = static_cast<float>(pixel[0]) * 0.2989f;
  const float yellow = std::fma(static_cast<float>(pixel[1]), 0.587f, red);
  return static_cast<std::uint64_t>(std::fma(static_cast<float>(pixel[2]), 0.114f, yellow));
}

std::uint8_t saturated(const Saturation& by, std::uint64_t of_pixel, std::uint8_t value) {
  const float sum =
      std::fma(static_cast<float>(of_pixel), by.rest, static_cast<float>(value) * by.factor);
  return static_cast<std::uint8_t>(std::clamp(sum, 0.0f, 255.0f));
}

void test_gray_sum(const Isa& isa) {
  const GuardedBytes bytes(3 * 5000);
  for (const std::size_t count : {0, 1, 2, 15, 16, 17, 33, 100, 5000}) {
    const std::uint8_t* const pixels = bytes.end() - 3 * count;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += gray(pixels + 3 * i);
    CHECK(isa.resize->gray_sum(pixels, count) == sum);
  }
  // More pixels than a 32-bit sum can hold.
  constexpr std::size_t kMany = (std::size_t{1} << 23) + 5;
  const std::vector<std::uint8_t> white(3 * kMany, 255);
  CHECK(isa.resize->gray_sum(white.data(), kMany) == kMany * gray(white.data()));
}

void test_saturate(const Isa& isa) {
  // Every red with every green, each with another blue, by factors whose sums are rounded, clamped
  // at both ends, and unchanged.
  std::vector<std::uint8_t> all;
  for (unsigned i = 0; i < 65536; ++i) {
    for (const unsigned value : {i, i >> 8, i * 37 % 251}) {
      all.push_back(static_cast<std::uint8_t>(value));
    }
  }
  for (const float factor : {0.0f, 0.123f, 0.5f, 1.0f, 1.37f, 3.0f, 1e-20f, 1e30f}) {
    const Saturation by{factor, static_cast<float>(1.0 - double{factor})};
    std::vector<std::uint8_t> pixels = all;
    pixels.resize(all.size() + kRunSlack);
    isa.resize->saturate(by, pixels.data(), all.size() / 3);
    bool same = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      same &= pixels[i] == saturated(by, gray(&all[i / 3 * 3]), all[i]);
    }
    CHECK(same);
  }
  const GuardedBytes bytes(3 * 100 + kRunSlack);
  for (const std::size_t count : {0, 1, 2, 7, 8, 9, 33, 100}) {
    std::uint8_t* const pixels = bytes.end() - 3 * count - kRunSlack;
    std::copy_n(all.data() + 777, 3 * count, pixels);
    isa.resize->saturate({0.5f, 0.5f}, pixels, count);
    bool same = true;
    for (std::size_t i = 0; i < 3 * count; ++i) {
      same &= pixels[i] == saturated({0.5f, 0.5f}, gray(&all[777 + i / 3 * 3]), all[777 + i]);
    }
    CHECK(same);
  }
}

}  // namespace

void color_tests() {
  run_on_isas("sum of gray pixels", test_gray_sum);
  run_on_isas("saturation", test_saturate);
}
