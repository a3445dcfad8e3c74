#include "kernels/row_plan.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/check.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::best_fit;
using pinfeed::kernels::Documents;
using pinfeed::kernels::first_fit;
using pinfeed::kernels::RowPlan;

using Lengths = std::vector<std::int32_t>;

struct Case {
  Lengths lengths;
  std::int32_t row_length;
  std::uint32_t max_in_row;

  Documents documents() const { return {lengths.data(), lengths.size(), row_length, max_in_row}; }
};

Case random_case(std::mt19937& random) {
  const auto row_length = static_cast<std::int32_t>(1 + random() % (random() % 2 ? 12 : 9000));
  Case given{.lengths = {}, .row_length = row_length, .max_in_row = ~std::uint32_t{0}};
  if (random() % 2) given.max_in_row = 1 + random() % 4;
  for (std::size_t count = random() % 300; count > 0; --count) {
    given.lengths.push_back(static_cast<std::int32_t>(random() % (row_length + 1)));
  }
  return given;
}

// The lengths in each row.
std::vector<Lengths> rows_of(const RowPlan& plan, const Lengths& lengths) {
  std::vector<Lengths> rows;
  for (std::size_t row = 0; row + 1 < plan.offsets.size(); ++row) {
    rows.emplace_back();
    for (auto i = plan.offsets[row]; i < plan.offsets[row + 1]; ++i) {
      rows.back().push_back(lengths[plan.order[i]]);
    }
  }
  return rows;
}

// The rule itself: the best fitting row by `better`; of equal rows the last or the first.
template <class Better>
std::vector<Lengths> placed(const Case& given, const Lengths& lengths, const Better& better) {
  std::vector<Lengths> rows;
  std::vector<std::int32_t> spaces;
  for (const std::int32_t length : lengths) {
    if (length == 0) continue;
    std::size_t best = rows.size();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const bool fits = spaces[row] >= length && rows[row].size() < given.max_in_row;
      if (fits && (best == rows.size() || better(spaces[row], spaces[best]))) best = row;
    }
    if (best == rows.size()) {
      rows.emplace_back();
      spaces.push_back(given.row_length);
    }
    rows[best].push_back(length);
    spaces[best] -= length;
  }
  return rows;
}

bool holds_each_once(const RowPlan& plan, const Lengths& lengths) {
  std::vector<std::uint32_t> expected, given = plan.order;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > 0) expected.push_back(static_cast<std::uint32_t>(i));
  }
  std::ranges::sort(given);
  return given == expected;
}

void test_first_fit_equals_the_rule() {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const Case given = random_case(random);
    const RowPlan plan = first_fit(given.documents(), nullptr);
    const auto never = [](std::int32_t, std::int32_t) { return false; };
    CHECK(rows_of(plan, given.lengths) == placed(given, given.lengths, never));
    CHECK(holds_each_once(plan, given.lengths));
  }
}

void test_first_fit_takes_an_order() {
  const Case given{.lengths = {5, 0, 3, 4}, .row_length = 8, .max_in_row = 9};
  const std::vector<std::int64_t> order{3, 2, 1, 0};
  const RowPlan plan = first_fit(given.documents(), order.data());
  CHECK((plan.order == std::vector<std::uint32_t>{3, 2, 0}));
  CHECK((plan.offsets == std::vector<std::int64_t>{0, 2, 3}));
}

// Rows with equal space differ only in their number of documents, which matters only if it is
// limited.
void test_best_fit_equals_the_rule() {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    Case given = random_case(random);
    const bool limited = given.max_in_row < 5;
    Lengths sorted = given.lengths;
    std::ranges::sort(sorted, std::greater<>());
    const auto tighter = [](std::int32_t space, std::int32_t than) { return space < than; };
    const std::vector<Lengths> expected = placed(given, sorted, tighter);
    const std::uint64_t key = random();
    for (const std::uint64_t* const chosen : {static_cast<const std::uint64_t*>(nullptr), &key}) {
      const RowPlan plan = best_fit(given.documents(), chosen);
      CHECK(holds_each_once(plan, given.lengths));
      std::vector<Lengths> rows = rows_of(plan, given.lengths);
      for (const Lengths& row : rows) {
        CHECK(row.size() <= given.max_in_row);
        std::int64_t sum = 0;
        for (const std::int32_t length : row) sum += length;
        CHECK(sum <= given.row_length);
      }
      if (!limited) CHECK(rows.size() == expected.size());
    }
  }
}

void test_chance_follows_from_the_key() {
  const Case given{.lengths = Lengths(1000, 3), .row_length = 9, .max_in_row = 9};
  const std::uint64_t one = 1, other = 2;
  const RowPlan first = best_fit(given.documents(), &one);
  CHECK(first.order == best_fit(given.documents(), &one).order);
  CHECK(first.order != best_fit(given.documents(), &other).order);
  CHECK(first.order != best_fit(given.documents(), nullptr).order);
}

void test_long_rows_take_no_more_memory() {
  const std::int32_t longest = std::numeric_limits<std::int32_t>::max();
  const Case given{.lengths = {1, 15, 0, 4}, .row_length = longest, .max_in_row = 9};
  const std::vector<Lengths> expected{{15, 4, 1}};
  CHECK(rows_of(best_fit(given.documents(), nullptr), given.lengths) == expected);
}

}  // namespace

void row_plan_tests() {
  run("first-fit is the rule", test_first_fit_equals_the_rule);
  run("first-fit takes an order", test_first_fit_takes_an_order);
  run("best-fit is the rule", test_best_fit_equals_the_rule);
  run("long rows take no more memory", test_long_rows_take_no_more_memory);
  run("random numbers of best-fit depend on the key only", test_chance_follows_from_the_key);
}
