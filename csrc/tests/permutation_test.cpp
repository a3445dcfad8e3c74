#include "kernels/permutation.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/check.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Permutation;

Permutation::Keys keys_from(std::uint64_t seed) {
  Permutation::Keys keys;
  for (auto& key : keys) key = seed = seed * 6364136223846793005u + 1442695040888963407u;
  return keys;
}

std::vector<std::int64_t> mapped(std::uint64_t size, std::uint64_t seed, std::uint64_t start,
                                 std::uint64_t count) {
  std::vector<std::int64_t> out(count);
  Permutation(size, keys_from(seed)).map(start, count, out.data());
  return out;
}

void test_every_value_comes_once() {
  // Around the sizes at which the radices change, and every small one.
  std::vector<std::uint64_t> sizes{4095, 4096, 4097, 65535, 65536, 65537, 99999};
  for (std::uint64_t size = 1; size <= 200; ++size) sizes.push_back(size);
  for (const std::uint64_t size : sizes) {
    auto values = mapped(size, size, 0, size);
    std::ranges::sort(values);
    bool all = true;
    for (std::uint64_t i = 0; i < size; ++i) all = all && values[i] == static_cast<std::int64_t>(i);
    CHECK(all);
  }
}

void test_any_range_equals_its_part_of_the_whole() {
  const auto whole = mapped(10007, 3, 0, 10007);
  for (const std::uint64_t start : {0u, 1u, 100u, 101u, 5000u, 10006u}) {
    for (const std::uint64_t count : {0u, 1u, 7u, 300u}) {
      if (start + count > 10007) continue;
      const auto part = mapped(10007, 3, start, count);
      CHECK(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(start)));
    }
  }
}

void test_the_largest_size() {
  const std::uint64_t size = std::uint64_t{1} << 62;
  for (const std::uint64_t start : {std::uint64_t{0}, size / 2, size - 100}) {
    auto values = mapped(size, 5, start, 100);
    for (const std::int64_t value : values) {
      CHECK(value >= 0 && static_cast<std::uint64_t>(value) < size);
    }
    std::ranges::sort(values);
    CHECK(std::ranges::adjacent_find(values) == values.end());
  }
}

}  // namespace

void permutation_tests() {
  run("every value comes once", test_every_value_comes_once);
  run("any range equals its part of the whole", test_any_range_equals_its_part_of_the_whole);
  run("the largest size", test_the_largest_size);
}
