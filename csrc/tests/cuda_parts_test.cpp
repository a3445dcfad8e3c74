// Parts of the CUDA kernels: division, bytes and words, loads from any address, pixels.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/divider.h"
#include "cuda/memory.h"
#include "cuda/pixels.h"
#include "cuda/portable.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"

namespace {

using namespace pinfeed::cuda;
using pinfeed::tests::run;
using Random = std::mt19937_64;

// All small numbers, and numbers near powers of two and multiples of the divisor.
void test_divider() {
  const auto agrees = [](std::int64_t dividend, std::int64_t divisor) {
    const Division result = Divider(divisor).divide(dividend);
    return result.quotient == dividend / divisor && result.remainder == dividend % divisor;
  };
  bool all = true;
  for (std::int64_t divisor = 1; divisor < 300; ++divisor) {
    for (std::int64_t dividend = 0; dividend < 1000; ++dividend) {
      all = all && agrees(dividend, divisor);
    }
  }
  CHECK(all);
  Random random(1);
  for (int repeat = 0; repeat < 1000000; ++repeat) {
    const auto any = [&] {
      const auto bits = 1 + random() % 63;
      auto number = static_cast<std::int64_t>(random() >> (64 - bits));
      if (random() % 4 == 0) number = std::int64_t{1} << (bits - 1);
      return number;
    };
    const std::int64_t divisor = std::max<std::int64_t>(any(), 1);
    std::int64_t dividend = any();
    if (random() % 2 == 0) dividend -= dividend % divisor;
    all = all && agrees(dividend, divisor) && (dividend == 0 || agrees(dividend - 1, divisor));
  }
  CHECK(all);
  CHECK(agrees(INT64_MAX, 1) && agrees(INT64_MAX, INT64_MAX) && agrees(INT64_MAX, 2));
  CHECK(Divider(0).divide(7).quotient == 7);  // a divisor of 0 counts as 1
}

void test_words() {
  Random random(2);
  for (int repeat = 0; repeat < 10000; ++repeat) {
    const auto a = static_cast<std::uint32_t>(random()), b = static_cast<std::uint32_t>(random());
    std::uint8_t bytes[8];
    std::memcpy(bytes, &a, 4), std::memcpy(bytes + 4, &b, 4);
    const std::uint32_t selected = select_bytes(a, b, 0x7160);
    const std::uint8_t expected[] = {bytes[0], bytes[6], bytes[1], bytes[7]};
    CHECK(std::memcmp(&selected, expected, 4) == 0);
    for (unsigned shift = 0; shift < 4; ++shift) {
      const std::uint32_t shifted = shift_words(a, b, 8 * shift);
      CHECK(std::memcmp(&shifted, bytes + shift, 4) == 0);
    }
  }
}

// 16 bytes from every address of a range of memory that ends at any byte.
void test_unaligned_loads() {
  const pinfeed::tests::GuardedBytes memory(4096);
  const std::uint8_t* const last = memory.end();
  const std::uint8_t* const first = memory.begin();
  for (std::size_t size = 16; size < 80; ++size) {
    for (std::size_t at = 0; at + 16 <= size; ++at) {
      for (std::size_t shift = 0; shift < 17; ++shift) {
        for (const std::uint8_t* begin : {last - size - shift, first + shift}) {
          const Vector vector = load_unaligned(begin + at, begin, begin + size);
          CHECK(std::memcmp(vector.at, begin + at, 16) == 0);
          if (shift != 0) continue;  // reads must stay inside [begin, end)
          std::vector<std::uint8_t> copy(begin, begin + size);
          const Vector exact = load_unaligned(copy.data() + at, copy.data(), copy.data() + size);
          CHECK(std::memcmp(exact.at, begin + at, 16) == 0);
        }
      }
    }
  }
}

void test_pixels() {
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    CHECK(byte_value(byte) == static_cast<float>(byte));
  }
  const Vector vector{{0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c}};
  for (int i = 0; i < 16; ++i) {
    CHECK(byte_of(&vector, i) == static_cast<std::uint32_t>(i));
  }
}

}  // namespace

void cuda_parts_tests() {
  run("device parts: division", test_divider);
  run("device parts: bytes of words", test_words);
  run("device parts: loads from any address", test_unaligned_loads);
  run("device parts: pixels", test_pixels);
}
