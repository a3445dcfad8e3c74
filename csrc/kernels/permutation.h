// A permutation of 0..size-1 that follows from a key and stores nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfeed::kernels {

// A Feistel network over pairs (left, right) of two nearly equal radices whose product is at least
// `size`: each round adds to one half a pseudo-random function of the other, which can be undone,
// so the whole is a permutation of the pairs. Pairs that stand for `size` or more go through the
// network again until one stands for less ("cycle walking": Black and Rogaway, Ciphers with
// Arbitrary Finite Domains, 2002). Fewer than three halves' worth of pairs are too many, so that
// hardly any does; small sizes take 64 x 64 pairs, for a network over a few pairs mixes badly.
class Permutation {
 public:
  static constexpr int kRounds = 6;
  using Keys = std::array<std::uint64_t, kRounds>;

  // `size` from 1 to 2^62.
  Permutation(std::uint64_t size, const Keys& keys);

  // Where the `count` positions from `start` on lead. They must end at `size` or before.
  void map(std::uint64_t start, std::uint64_t count, std::int64_t* out) const;

 private:
  template <std::size_t lanes>
  struct Pairs {
    std::array<std::uint64_t, lanes> left;
    std::array<std::uint64_t, lanes> right;
  };

  // Once through the network.
  template <std::size_t lanes>
  void pass(Pairs<lanes>& pairs) const;

  // Where the walk ends that has come to this pair.
  std::uint64_t walked(std::uint64_t left, std::uint64_t right) const;

  std::uint64_t size_;
  std::uint64_t lefts_;
  std::uint64_t rights_;
  Keys keys_;
};

}  // namespace pinfeed::kernels
