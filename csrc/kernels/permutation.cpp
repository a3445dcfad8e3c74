#include "kernels/permutation.h"

#include <algorithm>
#include <cmath>

namespace pinfeed::kernels {
namespace {

constexpr std::uint64_t kMinSide = 64;

// In [0, bound), `bound` below 2^32: a product's upper half is a fraction of `bound`. The
// multipliers are odd, with no pattern in their bits (2^64 / the golden ratio, and a multiplier
// found by search for such mixers).
inline std::uint64_t random_below(std::uint64_t bound, std::uint64_t value, std::uint64_t key) {
  std::uint64_t bits = (value ^ key) * 0x9E3779B97F4A7C15u;
  bits = (bits ^ (bits >> 32)) * 0xD6E8FEB86659FD93u;
  return ((bits >> 32) * bound) >> 32;
}

inline std::uint64_t add_below(std::uint64_t bound, std::uint64_t value, std::uint64_t addend) {
  const std::uint64_t sum = value + addend;
  return sum < bound ? sum : sum - bound;
}

std::uint64_t rounded_up_root(std::uint64_t square) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(square)));
  while (root * root < square) ++root;
  return root;
}

}  // namespace

Permutation::Permutation(std::uint64_t size, const Keys& keys)
    : size_(size),
      lefts_(std::max(rounded_up_root(size), kMinSide)),
      rights_(std::max((size + lefts_ - 1) / lefts_, kMinSide)),
      keys_(keys) {}

template <std::size_t lanes>
void Permutation::pass(Pairs<lanes>& pairs) const {
  for (int round = 0; round < kRounds; round += 2) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      std::uint64_t& left = pairs.left[lane];
      std::uint64_t& right = pairs.right[lane];
      left = add_below(lefts_, left, random_below(lefts_, right, keys_[round]));
      right = add_below(rights_, right, random_below(rights_, left, keys_[round + 1]));
    }
  }
}

std::uint64_t Permutation::walked(std::uint64_t left, std::uint64_t right) const {
  std::uint64_t value = left * rights_ + right;
  while (value >= size_) {
    Pairs<1> pair{{value / rights_}, {value % rights_}};
    pass(pair);
    value = pair.left[0] * rights_ + pair.right[0];
  }
  return value;
}

void Permutation::map(std::uint64_t start, std::uint64_t count, std::int64_t* out) const {
  constexpr std::size_t kLanes = 8;  // a round depends on the one before, but not on other lanes
  std::uint64_t left = start / rights_;
  std::uint64_t right = start % rights_;
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    Pairs<kLanes> pairs;  // the last ones may encode positions beyond the end
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      pairs.left[lane] = left;
      pairs.right[lane] = right;
      if (++right == rights_) {  // faster than a division each time
        ++left;
        right = 0;
      }
    }
    pass(pairs);
    const std::size_t lanes = std::min<std::uint64_t>(kLanes, count - i);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      out[i + lane] = static_cast<std::int64_t>(walked(pairs.left[lane], pairs.right[lane]));
    }
  }
}

}  // namespace pinfeed::kernels
