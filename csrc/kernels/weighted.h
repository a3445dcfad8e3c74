// Indices drawn at random in proportion to weights, with and without replacement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pinfeed::kernels {

// Draws with replacement in constant time, whatever the number of weights: Walker's alias method,
// with a table that two cursors fill from front to back (Huebschle-Schneider and Sanders, Parallel
// Weighted Random Sampling, 2022). Each index has a share of 1/n; what of it the index's own weight
// doesn't fill goes to one other index, its alias.
class AliasTable {
 public:
  // `weights` are finite, not negative and not all 0; there are at most 2^62.
  AliasTable(const double* weights, std::size_t count);

  // The draws from number `start` on, each of which follows from `key` and its number alone.
  void draw(std::uint64_t key, std::uint64_t start, std::size_t count, std::int64_t* out) const;

 private:
  struct Entry {
    std::uint64_t own;  // the index's own part of its share, of 2^64
    std::int64_t alias;
  };

  std::unique_ptr<Entry[]> entries_;
  std::size_t count_;
};

// For draws without replacement, a key for each of `count` weights whose numbers begin at `first`:
// the indices of the smallest keys, in ascending order, are those that one draw after the other
// gives. Efraimidis and Spirakis, Weighted random sampling with a reservoir (2006): -log(u) / w.
// A weight of 0 has an infinite key.
void draw_keys(const double* weights, std::size_t count, std::uint64_t key, std::uint64_t first,
               double* out);

}  // namespace pinfeed::kernels
