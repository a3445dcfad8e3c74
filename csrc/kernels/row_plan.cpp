#include "kernels/row_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

// A run of documents, in order of length, that share a row.
struct Placement {
  std::uint32_t row;
  std::uint32_t count;
};

// A set of numbers from 0 to `maximum`, as a bitset of two levels.
class NumberSet {
 public:
  explicit NumberSet(std::size_t maximum)
      : words_(maximum / 64 + 1), summary_(maximum / 4096 + 1) {}

  void insert(std::size_t number) {
    words_[number / 64] |= bit(number);
    summary_[number / 4096] |= bit(number / 64);
  }
  void erase(std::size_t number) {
    if ((words_[number / 64] &= ~bit(number)) == 0) summary_[number / 4096] &= ~bit(number / 64);
  }

  static constexpr std::size_t kNone = ~std::size_t{0};

  // The smallest number from `number` on.
  std::size_t next(std::size_t number) const {
    std::size_t word = number / 64;
    if (const std::uint64_t here = words_[word] & from(number)) return 64 * word + least(here);
    if (++word == words_.size()) return kNone;
    std::size_t block = word / 64;
    std::uint64_t blocks = summary_[block] & from(word);
    while (blocks == 0) {
      if (++block == summary_.size()) return kNone;
      blocks = summary_[block];
    }
    word = 64 * block + least(blocks);
    return 64 * word + least(words_[word]);
  }

 private:
  static std::uint64_t bit(std::size_t number) { return std::uint64_t{1} << number % 64; }
  static std::uint64_t from(std::size_t number) { return ~std::uint64_t{0} << number % 64; }
  static std::size_t least(std::uint64_t bits) {
    return static_cast<std::size_t>(std::countr_zero(bits));
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> summary_;  // the words that are not 0
};

// A sequence of random numbers.
class Draws {
 public:
  explicit Draws(std::uint64_t key) : philox_(key) {}

  void shuffle(std::span<std::uint32_t> numbers) {
    for (std::size_t i = numbers.size(); i > 1; --i) {
      std::swap(numbers[i - 1], numbers[below(i, next())]);
    }
  }

 private:
  std::uint64_t next() {
    if (next_ == 2) {
      bits_ = philox_(counter_++, 0);
      next_ = 0;
    }
    return bits_[next_++];
  }

  Philox philox_;
  std::uint64_t counter_ = 0;
  std::array<std::uint64_t, 2> bits_{};
  std::size_t next_ = 2;
};

// Open rows by remaining space; the last row added is used first.
class OpenRows {
 public:
  OpenRows(std::int32_t row_length, std::uint32_t max_in_row)
      : row_length_(static_cast<std::size_t>(row_length)),
        max_in_row_(max_in_row),
        spaces_(row_length_),
        tops_(row_length_ + 1, kNobody) {}

  // Puts documents of one length, at most `count`, into the best row until it is full.
  Placement place(std::size_t length, std::size_t count) {
    std::size_t space = spaces_.next(length);
    std::uint32_t row;
    if (space == NumberSet::kNone) {
      space = row_length_;
      row = static_cast<std::uint32_t>(below_.size());
      below_.push_back(kNobody);
      documents_.push_back(0);
    } else {
      row = tops_[space];
      tops_[space] = below_[row];
      if (tops_[space] == kNobody) spaces_.erase(space);
    }
    // No row has less remaining space, so the next document belongs here too.
    const std::size_t left = max_in_row_ - documents_[row];
    count = std::min({count, space / length, left});
    documents_[row] += static_cast<std::uint32_t>(count);
    space -= count * length;
    if (space > 0 && count < left) {
      below_[row] = tops_[space];
      tops_[space] = row;
      spaces_.insert(space);
    }
    return {row, static_cast<std::uint32_t>(count)};
  }

  // The number of documents in each row.
  const std::vector<std::uint32_t>& documents() const { return documents_; }

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  std::size_t row_length_;
  std::size_t max_in_row_;
  NumberSet spaces_;
  std::vector<std::uint32_t> tops_;   // for each amount of space, the row added last
  std::vector<std::uint32_t> below_;  // for each row, the row added before it
  std::vector<std::uint32_t> documents_;
};

std::vector<std::int64_t> ends_of(const std::vector<std::uint32_t>& sizes) {
  std::vector<std::int64_t> ends(sizes.size() + 1);
  for (std::size_t i = 0; i < sizes.size(); ++i) ends[i + 1] = ends[i] + sizes[i];
  return ends;
}

// Remaining space of rows, as a tree in which each node has the larger value of its children.
class SpaceTree {
 public:
  SpaceTree() : maxima_(2, 0) {}

  std::int32_t max_space() const { return maxima_[1]; }

  // The first row with at least `length` remaining; it must exist.
  std::size_t first_with(std::int32_t length) const {
    std::size_t node = 1;
    while (node < leaves_) node = 2 * node + (maxima_[2 * node] < length ? 1 : 0);
    return node - leaves_;
  }

  void set(std::size_t row, std::int32_t space) {
    if (row >= leaves_) grow();
    std::size_t node = leaves_ + row;
    maxima_[node] = space;
    while (node /= 2) maxima_[node] = std::max(maxima_[2 * node], maxima_[2 * node + 1]);
  }

  std::int32_t space(std::size_t row) const { return maxima_[leaves_ + row]; }

 private:
  void grow() {
    std::vector<std::int32_t> wider(4 * leaves_, 0);
    std::copy_n(&maxima_[leaves_], leaves_, &wider[2 * leaves_]);
    leaves_ *= 2;
    for (std::size_t node = leaves_; --node > 0;) {
      wider[node] = std::max(wider[2 * node], wider[2 * node + 1]);
    }
    maxima_ = std::move(wider);
  }

  std::size_t leaves_ = 1;
  std::vector<std::int32_t> maxima_;
};

}  // namespace

RowPlan best_fit(const Documents& documents, const std::uint64_t* key) {
  // The tables have an entry per length; a row need not be longer than all documents together.
  const std::int64_t total =
      std::accumulate(documents.lengths, documents.lengths + documents.count, std::int64_t{1});
  const auto row_length =
      static_cast<std::int32_t>(std::min<std::int64_t>(documents.row_length, total));
  const auto longest = static_cast<std::size_t>(row_length);
  // A counting sort; starts[longest - length]: the first index of documents of a length.
  std::vector<std::uint32_t> starts(longest + 2);
  for (std::size_t i = 0; i < documents.count; ++i) ++starts[longest + 1 - documents.lengths[i]];
  const std::size_t used = documents.count - starts[longest + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<std::uint32_t> sorted(used), next(starts.begin(), starts.end() - 2);
  for (std::size_t i = 0; i < documents.count; ++i) {
    const std::int32_t length = documents.lengths[i];
    if (length != 0) sorted[next[longest - length]++] = static_cast<std::uint32_t>(i);
  }

  Draws draws(key == nullptr ? 0 : *key);
  OpenRows rows(row_length, documents.max_in_row);
  std::vector<Placement> placements;
  placements.reserve(used / 2);
  for (std::size_t length = longest; length > 0; --length) {
    const std::size_t begin = starts[longest - length], end = starts[longest - length + 1];
    if (key != nullptr) draws.shuffle(std::span(sorted).subspan(begin, end - begin));
    for (std::size_t left = end - begin; left > 0; left -= placements.back().count) {
      placements.push_back(rows.place(length, left));
    }
  }

  RowPlan plan{.order = std::vector<std::uint32_t>(used), .offsets = ends_of(rows.documents())};
  // the current end of each row
  std::vector<std::int64_t> ends(plan.offsets.begin(), plan.offsets.end() - 1);
  const std::uint32_t* from = sorted.data();
  for (const Placement& placement : placements) {
    std::int64_t& end = ends[placement.row];
    std::copy_n(from, placement.count, &plan.order[end]);
    from += placement.count;
    end += placement.count;
  }
  if (key != nullptr) {
    for (std::size_t row = 0; row + 1 < plan.offsets.size(); ++row) {
      const auto begin = static_cast<std::size_t>(plan.offsets[row]);
      draws.shuffle(std::span(plan.order)
                        .subspan(begin, static_cast<std::size_t>(plan.offsets[row + 1]) - begin));
    }
  }
  return plan;
}

RowPlan first_fit(const Documents& documents, const std::int64_t* order) {
  const auto document = [&](std::size_t i) {
    return order == nullptr ? i : static_cast<std::size_t>(order[i]);
  };
  SpaceTree spaces;
  std::vector<std::uint32_t> sizes;  // the number of documents in each row
  std::vector<std::uint32_t> row_of(documents.count);
  for (std::size_t i = 0; i < documents.count; ++i) {
    const std::int32_t length = documents.lengths[document(i)];
    if (length == 0) continue;
    std::size_t row = sizes.size();
    std::int32_t space = documents.row_length;
    if (spaces.max_space() >= length) {
      row = spaces.first_with(length);
      space = spaces.space(row);
    } else {
      sizes.push_back(0);
    }
    row_of[i] = static_cast<std::uint32_t>(row);
    spaces.set(row, ++sizes[row] == documents.max_in_row ? 0 : space - length);
  }

  RowPlan plan{.order = {}, .offsets = ends_of(sizes)};
  plan.order.resize(static_cast<std::size_t>(plan.offsets.back()));
  std::vector<std::int64_t> ends(plan.offsets.begin(), plan.offsets.end() - 1);
  for (std::size_t i = 0; i < documents.count; ++i) {
    if (documents.lengths[document(i)] == 0) continue;
    plan.order[ends[row_of[i]]++] = static_cast<std::uint32_t>(document(i));
  }
  return plan;
}

}  // namespace pinfeed::kernels
