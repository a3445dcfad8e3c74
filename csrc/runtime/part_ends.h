// Finds which of many consecutive parts a row lies in.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pinfeed::runtime {

// A binary search among 10,000 parts mispredicts most of its branches: for rows of 3 KB it took a
// third as long as copying them. So a table limits the search to a few parts, per range of rows no
// longer than the average part.
class PartEnds {
 public:
  PartEnds() = default;  // one part, of any number of rows

  // ends[i]: the number of rows up to the end of part i; ascending, at least one.
  explicit PartEnds(std::vector<std::int64_t> ends) : ends_(std::move(ends)) {
    const auto parts = static_cast<std::int64_t>(ends_.size());
    const auto average = static_cast<std::uint64_t>(std::max<std::int64_t>(rows() / parts, 1));
    shift_ = static_cast<int>(std::bit_width(average)) - 1;
    const auto stretches = static_cast<std::size_t>(rows() >> shift_) + 1;
    first_parts_.reserve(stretches + 1);
    std::size_t part = 0;
    for (std::size_t i = 0; i <= stretches; ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) << shift_;
      while (part + 1 < ends_.size() && ends_[part] <= row) ++part;
      first_parts_.push_back(static_cast<std::uint32_t>(part));
    }
  }

  std::int64_t rows() const { return ends_.back(); }
  std::int64_t first_row(std::size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  // The part of an existing row.
  std::size_t part_of(std::int64_t row) const {
    if (ends_.size() <= 1) return 0;
    constexpr std::size_t kFew = 4;
    const auto stretch = static_cast<std::size_t>(row >> shift_);
    std::size_t part = first_parts_[stretch];
    const std::size_t last = first_parts_[stretch + 1];
    if (last - part > kFew) {
      const auto begin = ends_.begin();
      const auto found = std::upper_bound(begin + static_cast<std::ptrdiff_t>(part),
                                          begin + static_cast<std::ptrdiff_t>(last), row);
      return static_cast<std::size_t>(found - begin);
    }
    while (ends_[part] <= row) ++part;
    return part;
  }

 private:
  std::vector<std::int64_t> ends_;
  int shift_ = 0;                           // a range is 1 << shift_ rows
  std::vector<std::uint32_t> first_parts_;  // of the first row of each range, and one more
};

}  // namespace pinfeed::runtime
