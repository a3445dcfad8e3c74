// Draws random indices in proportion to weights, with and without replacement.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinfeed::kernels {

// One of `count` equal shares of a table for draws with replacement: the part of it, in units of
// 2^-64, that belongs to the share's own index, and the index that has the rest.
struct AliasShare {
  std::uint64_t own;
  std::uint64_t alias;
};

// Walker's alias method: the time of a draw does not depend on the number of weights. Weights are
// finite, not negative and not all 0; there are at most 2^62. Two cursors fill the table from front
// to back (Huebschle-Schneider and Sanders, Parallel Weighted Random Sampling, 2022).
void build_alias_table(const double* weights, std::size_t count, AliasShare* shares);

// The draws from number `start` on. Each depends only on `key` and its number.
void draw_from_table(const AliasShare* shares, std::size_t count, std::uint64_t key,
                     std::uint64_t start, std::size_t draws, std::int64_t* out);

// For draws without replacement: a sort key for each of `count` weights whose numbers begin at
// `first`. The indices in ascending order of keys are the indices in the order of successive draws.
// Efraimidis and Spirakis, Weighted random sampling with a reservoir (2006): -log(u) / w. A weight
// of 0 has an infinite key.
void draw_keys(const double* weights, std::size_t count, std::uint64_t key, std::uint64_t first,
               double* out);

}  // namespace pinfeed::kernels
