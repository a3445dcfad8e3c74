// Division by a constant of a launch.
#pragma once

#include <cstdint>

#include "cuda/portable.h"

namespace pinfeed::cuda {

struct Division {
  std::int64_t quotient;
  std::int64_t remainder;
};

// GPUs have no division instruction: a 64-bit division is a call of about a hundred instructions.
// With a reciprocal computed on the host it takes about fifteen.
class Divider {
 public:
  Divider() = default;
  // A divisor of 0 counts as 1: then the batch is empty, and nothing is divided.
  explicit Divider(std::int64_t divisor)
      : divisor_(divisor > 0 ? static_cast<std::uint64_t>(divisor) : 1),
        reciprocal_(UINT64_MAX / divisor_) {}

  PINFEED_BOTH std::int64_t divisor() const { return static_cast<std::int64_t>(divisor_); }

  // For dividends from 0 on.
  PINFEED_BOTH Division divide(std::int64_t dividend) const {
    const auto n = static_cast<std::uint64_t>(dividend);
    // The reciprocal is too small by at most 1, and 2^64 times the quotient by at most n < 2^64; so
    // the quotient is right or one too small.
    std::uint64_t quotient = multiply_high(n, reciprocal_);
    std::uint64_t remainder = n - quotient * divisor_;
    if (remainder >= divisor_) {
      ++quotient;
      remainder -= divisor_;
    }
    return {static_cast<std::int64_t>(quotient), static_cast<std::int64_t>(remainder)};
  }

 private:
  std::uint64_t divisor_ = 1;
  std::uint64_t reciprocal_ = UINT64_MAX;
};

}  // namespace pinfeed::cuda
