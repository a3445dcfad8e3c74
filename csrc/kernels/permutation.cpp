#include "kernels/permutation.h"

#include <algorithm>
#include <cmath>

namespace pinfeed::kernels {
namespace {

constexpr std::uint64_t kFewest = 64;

// From 0 to `most` - 1, which is below 2^32: a product's upper half is a fraction of `most`. The
// multipliers are odd and without a pattern in their bits (2^64 / the golden ratio, and one found
// by search for such mixers).
inline std::uint64_t random_below(std::uint64_t most, std::uint64_t value, std::uint64_t key) {
  std::uint64_t bits = (value ^ key) * 0x9E3779B97F4A7C15u;
  bits = (bits ^ (bits >> 32)) * 0xD6E8FEB86659FD93u;
  return ((bits >> 32) * most) >> 32;
}

inline std::uint64_t add_below(std::uint64_t most, std::uint64_t value, std::uint64_t addend) {
  const std::uint64_t sum = value + addend;
  return sum < most ? sum : sum - most;
}

std::uint64_t rounded_up_root(std::uint64_t square) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(square)));
  while (root * root < square) ++root;
  return root;
}

}  // namespace

Permutation::Permutation(std::uint64_t size, const Keys& keys)
    : size_(size),
      lefts_(std::max(rounded_up_root(size), kFewest)),
      rights_(std::max((size + lefts_ - 1) / lefts_, kFewest)),
      keys_(keys) {}

std::uint64_t Permutation::mapped(Pair pair) const {
  std::uint64_t value;
  do {
    for (int round = 0; round < kRounds; round += 2) {
      pair.left = add_below(lefts_, pair.left, random_below(lefts_, pair.right, keys_[round]));
      pair.right =
          add_below(rights_, pair.right, random_below(rights_, pair.left, keys_[round + 1]));
    }
    value = pair.left * rights_ + pair.right;
  } while (value >= size_);
  return value;
}

void Permutation::map(std::uint64_t start, std::uint64_t count, std::int64_t* out) const {
  Pair pair{start / rights_, start % rights_};
  for (std::uint64_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::int64_t>(mapped(pair));
    if (++pair.right == rights_) pair = {pair.left + 1, 0};  // faster than to divide each time
  }
}

}  // namespace pinfeed::kernels
