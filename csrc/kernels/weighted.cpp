#include "kernels/weighted.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

std::uint64_t below(std::uint64_t bits, std::uint64_t most) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * most) >> 64);
}

// -log(u) of a u between 0 and 1, neither included. The standard library's logarithm may differ
// between machines in the last bit, and with it the order of two keys; this one is made of
// operations whose rounding is prescribed. log(m) = 2 atanh((m - 1) / (m + 1)), as a series.
double exponential(std::uint64_t bits) {
  constexpr double kLog2 = 0.69314718055994530942;
  const double uniform = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(uniform) >> 52) - 1022;
  double mantissa = std::bit_cast<double>(
      (std::bit_cast<std::uint64_t>(uniform) & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u);
  if (mantissa < 0.70710678118654752440) {  // nearer to 1, the series is shorter
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  double sum = 0;
  for (int power = 23; power >= 1; power -= 2) sum = sum * (s * s) + 1.0 / power;
  return -(exponent * kLog2 + 2 * s * sum);
}

}  // namespace

AliasTable::AliasTable(const double* weights, std::size_t count) : entries_(count) {
  // Scaled by the largest first, so that no sum of them overflows.
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = weights[i] > largest ? weights[i] : largest;
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) total += weights[i] / largest;
  std::vector<double> parts(count);  // of 1/n
  // Indices with less than a share from the front, those with more from the back.
  std::vector<std::int64_t> stack(count);
  std::size_t few = 0;
  std::size_t many = count;
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = weights[i] / largest / total * static_cast<double>(count);
    (parts[i] < 1 ? stack[few++] : stack[--many]) = static_cast<std::int64_t>(i);
  }
  const std::int64_t positive = many < count ? stack[count - 1] : 0;
  while (few > 0 && many < count) {
    const auto i = static_cast<std::size_t>(stack[--few]);
    const auto rich = static_cast<std::size_t>(stack[many]);
    entries_[i] = {static_cast<std::uint64_t>(parts[i] * 0x1p64), stack[many]};
    parts[rich] -= 1 - parts[i];
    if (parts[rich] < 1) {
      ++many;
      stack[few++] = static_cast<std::int64_t>(rich);
    }
  }
  // What is left over fills its share, but for roundings. A weight of 0 must still never be drawn.
  while (few > 0) {
    const std::int64_t i = stack[--few];
    const bool is_drawn = weights[i] > 0;
    entries_[static_cast<std::size_t>(i)] = {is_drawn ? kAll : 0, is_drawn ? i : positive};
  }
  while (many < count) {
    const std::int64_t i = stack[many++];
    entries_[static_cast<std::size_t>(i)] = {kAll, i};
  }
}

void AliasTable::draw(std::uint64_t key, std::uint64_t start, std::size_t count,
                      std::int64_t* out) const {
  const Philox random(key);
  // The table is larger than the cache: a few entries are asked for while others are on their way.
  constexpr std::size_t kAhead = 16;
  for (std::size_t begin = 0; begin < count; begin += kAhead) {
    const std::size_t size = count - begin < kAhead ? count - begin : kAhead;
    std::uint64_t places[kAhead];
    std::uint64_t bits[kAhead];
    for (std::size_t i = 0; i < size; ++i) {
      const auto drawn = random(start + begin + i, 0);
      places[i] = below(drawn[0], entries_.size());
      bits[i] = drawn[1];
      __builtin_prefetch(&entries_[places[i]]);
    }
    for (std::size_t i = 0; i < size; ++i) {
      const Entry& entry = entries_[places[i]];
      out[begin + i] = bits[i] < entry.own ? static_cast<std::int64_t>(places[i]) : entry.alias;
    }
  }
}

void draw_keys(const double* weights, std::size_t count, std::uint64_t key, std::uint64_t first,
               double* out) {
  const Philox random(key);
  for (std::size_t i = 0; i < count; ++i) {
    // Not infinite, however small the weight is.
    const double key_of_weight = exponential(random(first + i, 0)[0]) / weights[i];
    out[i] = weights[i] > 0 ? std::min(key_of_weight, std::numeric_limits<double>::max())
                            : std::numeric_limits<double>::infinity();
  }
}

}  // namespace pinfeed::kernels
