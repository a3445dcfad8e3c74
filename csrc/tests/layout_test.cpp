// Checks of shapes, strides and bytes for both bindings.
#include "arrays/layout.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/check.h"

namespace {

using namespace pinfeed::arrays;
using pinfeed::tests::run;

constexpr std::int64_t kMax = INT64_MAX;

std::string refusal(const Shape& shape, std::size_t item_size) {
  try {
    checked_bytes(shape, item_size, "pad");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

void test_texts() {
  CHECK(shape_text(Shape{}) == "()");
  CHECK(shape_text(Shape{3}) == "(3,)");
  CHECK(shape_text(Shape{3, 0, -1}) == "(3, 0, -1)");
}

void test_bytes() {
  CHECK(checked_bytes(Shape{}, 8, "") == 8);
  CHECK(checked_bytes(Shape{3, 5}, 8, "") == 120);
  CHECK(checked_bytes(Shape{3, 0, 5}, 8, "") == 0);
  CHECK(checked_bytes(Shape{kMax}, 1, "") == static_cast<std::size_t>(kMax));
  const std::string max = std::to_string(kMax);
  CHECK(refusal({kMax}, 2) == "pad: an output of shape (" + max + ",) is too large for any memory");
  CHECK(refusal({kMax, 0, 2}, 1) == "pad: an output of shape (" + max +
                                        ", 0, 2) is too large for any memory, sizes of 0 aside");
  CHECK(refusal({kMax, 0}, 1).empty());
}

void test_strides() {
  CHECK((contiguous_strides(Shape{2, 3, 4}, 8) == Shape{96, 32, 8}));
  CHECK((contiguous_strides(Shape{2, 0, 4}, 1) == Shape{4, 4, 1}));
  CHECK(contiguous_strides(Shape{}, 8).empty());
  CHECK((channels_last_strides(Shape{2, 3, 4, 5}, 2) == Shape{120, 2, 30, 6}));
  const Shape shape{2, 1, 4};
  CHECK(has_strides(shape, Shape{4, 7, 1}, Shape{4, 9, 1}));
  CHECK(!has_strides(shape, Shape{5, 7, 1}, Shape{4, 7, 1}));
  CHECK(!has_strides(shape, Shape{4, 7, 2}, Shape{4, 7, 1}));
  CHECK(has_strides(Shape{2, 0, 4}, Shape{9, 9, 9}, Shape{4, 4, 1}));
  CHECK(has_strides(Shape{}, Shape{}, Shape{}));
}

void test_extents() {
  const std::byte memory[256]{};
  const auto is = [&](const Extent& extent, std::ptrdiff_t begin, std::ptrdiff_t end) {
    return extent.begin == memory + begin && extent.end == memory + end;
  };
  CHECK(is(extent(memory, Shape{}, Shape{}, 1, 8), 0, 8));
  CHECK(is(extent(memory, Shape{3, 5}, Shape{40, 8}, 1, 8), 0, 120));
  CHECK(is(extent(memory, Shape{3, 5}, Shape{5, 1}, 8, 8), 0, 120));
  CHECK(is(extent(memory + 200, Shape{3, 5}, Shape{-40, 8}, 1, 8), 120, 240));
  CHECK(is(extent(memory, Shape{3, 5}, Shape{0, 8}, 1, 8), 0, 40));
  CHECK(is(extent(memory, Shape{3, 0}, Shape{-40, 8}, 1, 8), 0, 0));

  const auto between = [&](int begin, int end) { return Extent{memory + begin, memory + end}; };
  for (int begin = 0; begin < 9; ++begin) {
    for (int end = begin; end < 9; ++end) {
      const bool shared = begin < end && begin < 6 && end > 3;
      CHECK(overlap(between(begin, end), between(3, 6)) == shared);
      CHECK(overlap(between(3, 6), between(begin, end)) == shared);
      CHECK(!overlap(between(begin, end), between(4, 4)));
    }
  }
}

}  // namespace

void layout_tests() {
  run("layout: shapes as text", test_texts);
  run("layout: bytes, and those that overflow", test_bytes);
  run("layout: strides", test_strides);
  run("layout: extents and their overlaps", test_extents);
}
