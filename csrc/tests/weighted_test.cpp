#include "kernels/weighted.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/philox.h"
#include "tests/check.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::AliasShare;
using pinfeed::kernels::build_alias_table;
using pinfeed::kernels::draw_from_table;
using pinfeed::kernels::draw_keys;
using pinfeed::kernels::Philox;

constexpr std::uint64_t kOnes = std::numeric_limits<std::uint64_t>::max();

std::vector<std::int64_t> drawn(const std::vector<double>& weights, std::uint64_t key,
                                std::size_t draws) {
  std::vector<AliasShare> table(weights.size());
  build_alias_table(weights.data(), weights.size(), table.data());
  std::vector<std::int64_t> out(draws);
  draw_from_table(table.data(), table.size(), key, 0, draws, out.data());
  return out;
}

// Known answers published with the generator.
void test_philox() {
  const auto zeros = Philox(0)(0, 0);
  CHECK(zeros[0] == 0xe169c58d6627e8d5u && zeros[1] == 0x9b00dbd8bc57ac4cu);
  const auto ones = Philox(kOnes)(kOnes, kOnes);
  CHECK(ones[0] == 0x41c83b0e408f276du && ones[1] == 0x6d5451fda20bc7c6u);
}

void test_no_weight_of_zero_is_drawn() {
  // Equal weights whose shares round to less than 1: then no share has more.
  for (std::size_t zeros = 0; zeros < 50; ++zeros) {
    for (std::size_t others = 1; others < 50; ++others) {
      std::vector<double> weights(zeros, 0);
      weights.resize(zeros + others, 0.1);
      bool positive = true;
      for (const std::int64_t i : drawn(weights, zeros, 300))
        positive = positive && i >= static_cast<std::int64_t>(zeros);
      CHECK(positive);
    }
  }
}

void test_sums_that_would_overflow() {
  const std::vector<double> weights(4, std::numeric_limits<double>::max());
  std::vector<int> counts(4);
  for (const std::int64_t index : drawn(weights, 1, 4000))
    ++counts[static_cast<std::size_t>(index)];
  for (const int count : counts) CHECK(count > 800 && count < 1200);
}

// Against the library's logarithm, to within a few units in the last place.
void test_keys() {
  const std::vector<double> weights(100'000, 2.0);
  std::vector<double> keys(weights.size());
  draw_keys(weights.data(), weights.size(), 11, 3, keys.data());
  bool close = true;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double uniform = (static_cast<double>(Philox(11)(3 + i, 0)[0] >> 12) + 0.5) * 0x1p-52;
    const double exact = -std::log(uniform) / 2;
    close = close && std::abs(keys[i] - exact) <= 1e-15 * exact + 1e-16;
  }
  CHECK(close);
  const std::vector<double> extreme{0, std::numeric_limits<double>::denorm_min()};
  draw_keys(extreme.data(), 2, 11, 0, keys.data());
  CHECK(std::isinf(keys[0]) && std::isfinite(keys[1]));
}

}  // namespace

void weighted_tests() {
  run("Philox gives the published answers", test_philox);
  run("no weight of zero is drawn", test_no_weight_of_zero_is_drawn);
  run("sums that would overflow", test_sums_that_would_overflow);
  run("keys of draws without replacement", test_keys);
}
