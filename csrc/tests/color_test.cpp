// What is done to values of images that are there: the mean of gray.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "kernels/resize.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::dispatch::Isa;

std::uint64_t gray(const std::uint8_t* pixel) {
  const float red = static_cast<float>(pixel[0]) * 0.2989f;
  const float yellow = std::fma(static_cast<float>(pixel[1]), 0.587f, red);
  return static_cast<std::uint64_t>(std::fma(static_cast<float>(pixel[2]), 0.114f, yellow));
}

void test_gray_sum(const Isa& isa) {
  const GuardedBytes bytes(3 * 5000);
  for (const std::size_t count : {0, 1, 2, 15, 16, 17, 33, 100, 5000}) {
    const std::uint8_t* const pixels = bytes.end() - 3 * count;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += gray(pixels + 3 * i);
    CHECK(isa.resize->gray_sum(pixels, count) == sum);
  }
  // Of more pixels than a sum of 32 bits holds.
  constexpr std::size_t kMany = (std::size_t{1} << 23) + 5;
  const std::vector<std::uint8_t> white(3 * kMany, 255);
  CHECK(isa.resize->gray_sum(white.data(), kMany) == kMany * gray(white.data()));
}

}  // namespace

void color_tests() {
  for (const Isa& isa : pinfeed::dispatch::compiled_isas()) {
    const std::string name = "sum of gray pixels on " + std::string(isa.name);
    run_if(isa.supported(), "this CPU does not have it", name.c_str(), [&] { test_gray_sum(isa); });
  }
}
