#include "kernels/weighted.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

// -log(u) for a u in (0, 1). The standard library's logarithm may differ between machines in the
// last bit, which could swap two keys; this one uses operations with specified rounding. log(m) = 2
// atanh((m - 1) / (m + 1)), as a series.
double exponential(std::uint64_t bits) {
  constexpr double kLog2 = 0.69314718055994530942;
  const double uniform = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(uniform) >> 52) - 1022;
  double mantissa = std::bit_cast<double>(
      (std::bit_cast<std::uint64_t>(uniform) & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u);
  if (mantissa < 0.70710678118654752440) {  // closer to 1, the series is shorter
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  double sum = 0;
  for (int power = 23; power >= 1; power -= 2) sum = sum * (s * s) + 1.0 / power;
  return -(exponent * kLog2 + 2 * s * sum);
}

}  // namespace

void build_alias_table(const double* weights, std::size_t count, AliasShare* shares) {
  // Divided by the largest, so that sums don't overflow.
  const double* const largest = std::max_element(weights, weights + count);
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) total += weights[i] / *largest;
  const double scale = static_cast<double>(count) / total;
  const auto part = [&](std::size_t i) { return weights[i] / *largest * scale; };  // in shares
  // Yields the indices whose weights fill a share (or don't), in order, then `count`. Searches many
  // at a time, because a branch per weight is unpredictable.
  const auto indices = [&](bool fill_share) {
    return [&part, fill_share, count, found = std::array<std::size_t, 256>{}, size = std::size_t{0},
            taken = std::size_t{0}, end = std::size_t{0}]() mutable {
      while (taken == size && end < count) {
        taken = size = 0;
        for (const std::size_t stop = std::min(end + found.size(), count); end < stop; ++end) {
          found[size] = end;
          size += static_cast<std::size_t>((part(end) >= 1) == fill_share);
        }
      }
      return taken < size ? found[taken++] : count;
    };
  };
  auto next_few = indices(false);
  auto next_many = indices(true);
  const auto set = [&](std::size_t i, double own, std::size_t alias) {
    shares[i] = {static_cast<std::uint64_t>(own * 0x1p64), alias};
  };

  // `few` walks the indices that don't fill their share, `many` the others; `rest` is the remaining
  // weight of `many`.
  std::size_t few = next_few();
  std::size_t many = next_many();
  double rest = many < count ? part(many) : 0;
  while (many < count && (rest < 1 || few < count)) {
    if (rest >= 1) {
      set(few, part(few), many);
      rest -= 1 - part(few);
      few = next_few();
    } else {
      const std::size_t following = next_many();
      if (following == count) break;
      set(many, rest, following);
      rest += part(following) - 1;
      many = following;
    }
  }
  // The remaining shares are full, apart from rounding. A weight of 0 must still never be drawn.
  for (; many < count; many = next_many()) shares[many] = {kAll, many};
  for (; few < count; few = next_few()) {
    shares[few] = weights[few] > 0 ? AliasShare{kAll, few}
                                   : AliasShare{0, static_cast<std::uint64_t>(largest - weights)};
  }
}

void draw_from_table(const AliasShare* shares, std::size_t count, std::uint64_t key,
                     std::uint64_t start, std::size_t draws, std::int64_t* out) {
  const Philox random(key);
  // The table is larger than the cache, so `kAhead` shares are prefetched at a time.
  constexpr std::size_t kAhead = 16;
  for (std::size_t begin = 0; begin < draws; begin += kAhead) {
    const std::size_t size = draws - begin < kAhead ? draws - begin : kAhead;
    std::uint64_t places[kAhead];
    std::uint64_t bits[kAhead];
    for (std::size_t i = 0; i < size; ++i) {
      const auto drawn = random(start + begin + i, 0);
      places[i] = below(count, drawn[0]);
      bits[i] = drawn[1];
      __builtin_prefetch(&shares[places[i]]);
    }
    for (std::size_t i = 0; i < size; ++i) {
      const AliasShare& share = shares[places[i]];
      out[begin + i] = static_cast<std::int64_t>(bits[i] < share.own ? places[i] : share.alias);
    }
  }
}

void draw_keys(const double* weights, std::size_t count, std::uint64_t key, std::uint64_t first,
               double* out) {
  const Philox random(key);
  for (std::size_t i = 0; i < count; ++i) {
    // Not infinite, even for the smallest weight.
    const double key_of_weight = exponential(random(first + i, 0)[0]) / weights[i];
    out[i] = weights[i] > 0 ? std::min(key_of_weight, std::numeric_limits<double>::max())
                            : std::numeric_limits<double>::infinity();
  }
}

}  // namespace pinfeed::kernels
