#include "kernels/resize_taps.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pinfeed::kernels {
namespace {

// The triangle filter, and Keys' cubic (1981) with a = -1/2, in torch's order of operations: the
// weights must be equal in every bit.
double triangle(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
  return 0.0;
}

// The source pixels of each output of a whole axis, antialiased.
class Filter {
 public:
  Filter(std::size_t in, std::size_t out, Interpolation interpolation)
      : in_(static_cast<std::int64_t>(in)),
        scale_(static_cast<double>(in) / static_cast<double>(out)),
        narrowing_(scale_ >= 1.0 ? 1.0 / scale_ : 1.0),
        is_cubic_(interpolation == Interpolation::bicubic) {
    const double radius = is_cubic_ ? 2.0 : 1.0;
    support_ = scale_ >= 1.0 ? radius * scale_ : radius;
    max_taps_ = static_cast<std::int64_t>(std::ceil(support_)) * 2 + 1;
  }

  // The maximum number of taps of an output.
  std::size_t max_taps() const { return static_cast<std::size_t>(max_taps_); }

  // Writes the weights of output `i`; returns their number and the first pixel.
  std::pair<std::size_t, std::size_t> taps(std::size_t i, double* weights) const {
    const double center = scale_ * (static_cast<double>(i) + 0.5);
    const auto first =
        std::max(static_cast<std::int64_t>(center - support_ + 0.5), std::int64_t{0});
    const auto end = std::min(static_cast<std::int64_t>(center + support_ + 0.5), in_);
    const auto count = std::clamp(end - first, std::int64_t{0}, max_taps_);
    double total = 0.0;
    for (std::int64_t t = 0; t < count; ++t) {
      const double x = (static_cast<double>(t + first) - center + 0.5) * narrowing_;
      weights[t] = is_cubic_ ? cubic(x) : triangle(x);
      total += weights[t];
    }
    if (total != 0.0) {
      for (std::int64_t t = 0; t < count; ++t) weights[t] /= total;
    }
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(count)};
  }

 private:
  std::int64_t in_;
  double scale_;
  double narrowing_;
  double support_;
  std::int64_t max_taps_;
  bool is_cubic_;
};

// The fraction bits of weights of at most `largest` that fit 16 bits.
unsigned precision_for(double largest) {
  unsigned precision = 0;
  while (precision < 22 && 0.5 + largest * (1 << (precision + 1)) < (1 << 15)) ++precision;
  return precision;
}

std::int16_t fixed_point(double weight, unsigned precision) {
  const double value = weight * (1 << precision);
  return static_cast<std::int16_t>(value < 0 ? -0.5 + value : 0.5 + value);
}

}  // namespace

void Taps::find(const ResizedAxis& axis) {
  if (axis == axis_) return;
  axis_ = axis;
  positions_.clear();
  skipped_ = 0;
  for (std::size_t i = 0; i < axis.size; ++i) {
    const auto index = static_cast<std::ptrdiff_t>(axis.flipped ? axis.size - 1 - i : i);
    const std::ptrdiff_t position = within(axis.begin + index, axis.out, axis.border);
    if (position >= 0) {
      positions_.push_back(static_cast<std::size_t>(position));
    } else if (positions_.empty()) {
      ++skipped_;
    }
  }
  outputs_ = positions_.size();
  firsts_.assign((outputs_ + kOutputs - 1) / kOutputs * kOutputs, 0);
  source_begin_ = source_size_ = 0;
  if (outputs_ == 0) return;
  if (takes_nearest(axis.interpolation)) {
    find_nearest();
  } else {
    find_weighted();
  }
}

void Taps::find_nearest() {
  const float scale = static_cast<float>(axis_.in) / static_cast<float>(axis_.out);
  const float center = axis_.interpolation == Interpolation::nearest_exact ? 0.5F : 0.0F;
  for (std::size_t i = 0; i < outputs_; ++i) {
    const float first = std::floor((static_cast<float>(positions_[i]) + center) * scale);
    firsts_[i] = std::min(static_cast<std::size_t>(first), axis_.in - 1);
  }
  max_taps_ = 1;
  keep_sources();
}

void Taps::find_weighted() {
  const Filter filter(axis_.in, axis_.out, axis_.interpolation);
  const auto [lowest, highest] = std::minmax_element(positions_.begin(), positions_.end());
  const std::size_t begin = *lowest, kept = *highest + 1 - begin, max_taps = filter.max_taps();
  std::vector<double> exact((kept + 1) *
                            max_taps);  // the last row is for outputs that are not kept
  std::vector<std::pair<std::size_t, std::size_t>> found(kept + 1);
  double largest = axis_.in_floats ? 1.0 : 0.0;  // of the whole axis; floats have no precision
  for (std::size_t i = 0; i < axis_.out; ++i) {
    // No weight reaches 2, and a weight of 1 or more already gives the lowest precision.
    if (largest >= 1.0) i = std::max(i, begin);
    if (largest >= 1.0 && i >= begin + kept) break;
    const std::size_t to = std::min(i - begin, kept);  // an i before `begin` becomes large
    double* const weights = &exact[to * max_taps];
    found[to] = filter.taps(i, weights);
    largest = std::max(largest, *std::max_element(weights, weights + found[to].second));
  }
  precision_ = precision_for(largest);
  max_taps_ = 0;
  for (std::size_t i = 0; i < kept; ++i) max_taps_ = std::max(max_taps_, found[i].second);
  floats_.assign(axis_.in_floats ? firsts_.size() * max_taps_ * kFloats : 0, 0.0F);
  weights_.assign(axis_.in_floats ? 0 : firsts_.size() * pairs() * kPairSize, 0);
  for (std::size_t i = 0; i < outputs_; ++i) {
    const std::size_t from = positions_[i] - begin;
    const auto [first, count] = found[from];
    firsts_[i] = first;
    for (std::size_t t = 0; t < count; ++t) {
      const double exact_weight = exact[from * max_taps + t];
      if (axis_.in_floats) {
        std::fill_n(&floats_[entry_offset(i, t, max_taps_, kFloats)], kFloats,
                    static_cast<float>(exact_weight));
        continue;
      }
      const std::int16_t weight = fixed_point(exact_weight, precision_);
      std::int16_t* const to = &weights_[entry_offset(i, t / 2, pairs(), kPairSize) + t % 2];
      for (std::size_t copy = 0; copy < kPairSize; copy += 2) to[copy] = weight;
    }
  }
  keep_sources();
}

// Makes first pixels relative to the smallest.
void Taps::keep_sources() {
  const auto [lowest, highest] = std::minmax_element(firsts_.begin(), firsts_.begin() + outputs_);
  source_begin_ = *lowest;
  source_size_ = std::min(*highest + max_taps_, axis_.in) - *lowest;
  for (std::size_t i = 0; i < outputs_; ++i) firsts_[i] -= source_begin_;
}

}  // namespace pinfeed::kernels
