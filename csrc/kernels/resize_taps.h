// The source pixels and weights of each pixel along one axis of a resized image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/image.h"

namespace pinfeed::kernels {

// `nearest` takes the pixel at an output's top left corner, `nearest_exact` the one at its center.
enum class Interpolation : std::uint8_t { bilinear, bicubic, nearest, nearest_exact };

constexpr bool takes_nearest(Interpolation interpolation) {
  return interpolation >= Interpolation::nearest;
}

// One axis of a resized image, and the part of the result that is visible.
struct ResizedAxis {
  std::size_t in;
  std::size_t out;
  std::ptrdiff_t begin;  // of the visible part, which may extend beyond the resized axis
  std::size_t size;
  bool flipped;  // the part is reversed
  Border border;
  Interpolation interpolation;
  bool in_floats;  // float32 weights instead of integers

  bool operator==(const ResizedAxis&) const = default;
};

class Taps {
 public:
  // SIMD code takes this many outputs at a time: there are weights for a multiple of it.
  static constexpr std::size_t kOutputs = 8;

  // Computes the taps of an axis, unless it is the same axis as in the last call.
  void find(const ResizedAxis& axis);

  // Outputs inside the resized axis are consecutive; the others are its fill.
  std::size_t skipped() const { return skipped_; }
  std::size_t outputs() const { return outputs_; }

  // The range of source pixels that outputs use: first(i) counts from source_begin().
  std::size_t source_begin() const { return source_begin_; }
  std::size_t source_size() const { return source_size_; }
  std::size_t first(std::size_t output) const { return firsts_[output]; }
  const std::size_t* firsts() const { return firsts_.data(); }

  // The maximum number of taps of an output; weights after an output's last tap are 0.
  std::size_t max_taps() const { return max_taps_; }

  // In floats: each weight four times, as SIMD code multiplies it by channels. After the weight of
  // an even output comes the same tap of the next output, then the next tap of the even one.
  const float* floats(std::size_t output, std::size_t tap) const {
    return &floats_[entry_offset(output, tap, max_taps_, kFloats)];
  }

  // In integers.
  std::size_t pairs() const { return (max_taps_ + 1) / 2; }
  unsigned precision() const { return precision_; }
  std::int16_t weight(std::size_t output, std::size_t tap) const {
    return pair(output, tap / 2)[tap % 2];
  }
  // Two weights, four times, in the same order.
  const std::int16_t* pair(std::size_t output, std::size_t pair) const {
    return &weights_[entry_offset(output, pair, pairs(), kPairSize)];
  }

 private:
  static constexpr std::size_t kPairSize = 8;
  static constexpr std::size_t kFloats = 4;

  // The offset of one of an output's `count` entries.
  static std::size_t entry_offset(std::size_t output, std::size_t entry, std::size_t count,
                                  std::size_t size) {
    return (output / 2 * count * 2 + entry * 2 + output % 2) * size;
  }
  void find_nearest();
  void find_weighted();
  void keep_sources();

  ResizedAxis axis_ = {};
  std::size_t skipped_ = 0;
  std::size_t outputs_ = 0;
  std::size_t source_begin_ = 0;
  std::size_t source_size_ = 0;
  std::size_t max_taps_ = 0;
  unsigned precision_ = 0;
  std::vector<std::size_t> positions_;  // per output, in the resized axis
  std::vector<std::size_t> firsts_;
  std::vector<float> floats_;
  std::vector<std::int16_t> weights_;
};

}  // namespace pinfeed::kernels
