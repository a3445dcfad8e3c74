#include "kernels/round.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "dispatch/cpu_features.h"
#include "tests/check.h"
#include "tests/rounding.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::to_bfloat16_bits;
using pinfeed::kernels::to_float16_bits;

#if defined(__x86_64__)
bool has_float16() { return pinfeed::dispatch::cpu_has_avx2(); }
__attribute__((target("f16c"))) std::uint16_t hardware_float16(float value) {
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__aarch64__)
bool has_float16() { return true; }
std::uint16_t hardware_float16(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<__fp16>(value));
}
#else
bool has_float16() { return false; }
std::uint16_t hardware_float16(float) { return 0; }
#endif

template <class Rounding, class Reference>
void compare(const Rounding& rounding, const Reference& reference) {
  std::size_t different = 0;
  visit_rounding_edges([&](float value) { different += rounding(value) != reference(value); });
  CHECK(different == 0);
}

void test_known_values() {
  CHECK(to_float16_bits(0.0f) == 0x0000);
  CHECK(to_float16_bits(-0.0f) == 0x8000);
  CHECK(to_float16_bits(1.0f) == 0x3c00);
  CHECK(to_float16_bits(-2.0f) == 0xc000);
  CHECK(to_float16_bits(65504.0f) == 0x7bff);
  CHECK(to_float16_bits(65520.0f) == 0x7c00);
  CHECK(to_float16_bits(0x1p-24f) == 0x0001);
  CHECK(to_float16_bits(0x1p-25f) == 0x0000);
  CHECK(to_bfloat16_bits(1.0f) == 0x3f80);
  CHECK(to_bfloat16_bits(-0.0f) == 0x8000);
  CHECK(to_bfloat16_bits(0x1.01p0f) == 0x3f80);
  CHECK(to_bfloat16_bits(0x1.03p0f) == 0x3f82);
  CHECK(to_bfloat16_bits(0x1.fffffep127f) == 0x7f80);
  CHECK(to_bfloat16_bits(0x1p-133f) == 0x0001);
}

}  // namespace

void round_tests() {
  run("rounding of well-known values", test_known_values);
  run("to_float16_bits rounds as IEEE 754 says", [] { compare(to_float16_bits, float16_bits); });
  run("to_bfloat16_bits rounds as IEEE 754 says", [] { compare(to_bfloat16_bits, bfloat16_bits); });
  run_if(has_float16(), "this CPU has no conversion to float16",
         "to_float16_bits agrees with the CPU", [] { compare(to_float16_bits, hardware_float16); });
}
