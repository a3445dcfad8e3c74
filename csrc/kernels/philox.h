// Counter-based random bits: a function of key and counter alone.
#pragma once

#include <array>
#include <cstdint>

namespace pinfeed::kernels {

// Philox4x32-10: Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3 (2011).
class Philox {
 public:
  explicit Philox(std::uint64_t key)
      : low_(static_cast<std::uint32_t>(key)), high_(static_cast<std::uint32_t>(key >> 32)) {}

  // 128 random bits per pair of counters.
  std::array<std::uint64_t, 2> operator()(std::uint64_t counter, std::uint64_t stream) const {
    std::uint32_t c0 = static_cast<std::uint32_t>(counter);
    std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(stream);
    std::uint32_t c3 = static_cast<std::uint32_t>(stream >> 32);
    std::uint32_t k0 = low_;
    std::uint32_t k1 = high_;
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<std::uint32_t>(p1);
      c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<std::uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {std::uint64_t{c1} << 32 | c0, std::uint64_t{c3} << 32 | c2};
  }

 private:
  std::uint32_t low_;
  std::uint32_t high_;
};

// In [0, 1). The product with a number of at most 2^52, rounded, is still below that number.
inline double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

inline double between(double low, double high, std::uint64_t bits) {
  return low + uniform(bits) * (high - low);
}
inline double between(const std::array<double, 2>& range, std::uint64_t bits) {
  return between(range[0], range[1], bits);
}

// In [0, bound), by a multiplication instead of a division: Lemire, Fast Random Integer Generation
// in an Interval (2019). With 64 bits and fewer than 2^32 numbers, the bias is at most 2^-32.
inline std::uint64_t below(std::uint64_t bound, std::uint64_t bits) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

// One of the integers 0..count-1.
inline std::int64_t one_of(std::int64_t count, std::uint64_t bits) {
  return static_cast<std::int64_t>(uniform(bits) * static_cast<double>(count));
}

}  // namespace pinfeed::kernels
