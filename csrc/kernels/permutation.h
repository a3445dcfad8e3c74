// A pseudo-random permutation of 0..size-1, computed from a key without a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfeed::kernels {

// A Feistel network over pairs (left, right) of two nearly equal radices whose product is at least
// `size`: each round adds a pseudo-random function of one half to the other half, which can be
// inverted, so the network permutes the pairs. Pairs that encode `size` or more pass through the
// network again until one encodes less ("cycle walking": Black and Rogaway, Ciphers with Arbitrary
// Finite Domains, 2002). The radices are nearly equal, so few pairs do. Small sizes use 64 x 64
// pairs, because a network over fewer pairs mixes badly.
class Permutation {
 public:
  static constexpr int kRounds = 6;
  using Keys = std::array<std::uint64_t, kRounds>;

  // `size` from 1 to 2^62.
  Permutation(std::uint64_t size, const Keys& keys);

  // Writes the permutation of the `count` positions from `start` on, which must end by `size`.
  void map(std::uint64_t start, std::uint64_t count, std::int64_t* out) const;

 private:
  template <std::size_t lanes>
  struct Pairs {
    std::array<std::uint64_t, lanes> left;
    std::array<std::uint64_t, lanes> right;
  };

  // One pass through the network.
  template <std::size_t lanes>
  void pass(Pairs<lanes>& pairs) const;

  // Continues the cycle walk from a pair until it encodes less than `size`.
  std::uint64_t walked(std::uint64_t left, std::uint64_t right) const;

  std::uint64_t size_;
  std::uint64_t lefts_;
  std::uint64_t rights_;
  Keys keys_;
};

}  // namespace pinfeed::kernels
