// Indices drawn at random in proportion to weights, with and without replacement.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinfeed::kernels {

// One of the `count` equal shares that a table for draws with replacement has: the part of it that
// is the index's own, of 2^64, and the index that has the rest.
struct AliasShare {
  std::uint64_t own;
  std::uint64_t alias;
};

// Walker's alias method: a draw takes the same short time whatever the number of weights, which are
// finite, not negative and not all 0; at most 2^62. Two cursors fill the table from front to back
// (Huebschle-Schneider and Sanders, Parallel Weighted Random Sampling, 2022).
void build_alias_table(const double* weights, std::size_t count, AliasShare* shares);

// The draws from number `start` on, each of which follows from `key` and its number alone.
void draw_from_table(const AliasShare* shares, std::size_t count, std::uint64_t key,
                     std::uint64_t start, std::size_t draws, std::int64_t* out);

// For draws without replacement, a key for each of `count` weights whose numbers begin at `first`:
// the indices of the smallest keys, in ascending order, are those that one draw after the other
// gives. Efraimidis and Spirakis, Weighted random sampling with a reservoir (2006): -log(u) / w.
// A weight of 0 has an infinite key.
void draw_keys(const double* weights, std::size_t count, std::uint64_t key, std::uint64_t first,
               double* out);

}  // namespace pinfeed::kernels
