// pack_samples and mark_segment, against rows written out one place at a time.
#include "kernels/pack.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "dispatch/dispatch.h"
#include "tests/check.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Fill;
using pinfeed::kernels::mark_segment;
using pinfeed::kernels::pack_samples;
using pinfeed::kernels::PackBatch;
using pinfeed::kernels::PackMarks;
using pinfeed::kernels::Sample;
using pinfeed::kernels::Segment;

constexpr std::int32_t kUnwritten = -77;

// Documents with gaps behind them: their tokens, and where they lie.
struct PackCase {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<Segment> segments;
  std::int64_t places = 0;

  explicit PackCase(std::mt19937& random) {
    for (std::size_t count = 1 + random() % 9; count > 0; --count) {
      const auto length = static_cast<std::int64_t>(1 + random() % 40);
      const std::int64_t gap = random() % 2 ? static_cast<std::int64_t>(random() % 30) : 0;
      tokens.emplace_back();
      for (std::int64_t i = 0; i < length; ++i) {
        tokens.back().push_back(static_cast<std::int32_t>(random() % 1000));
      }
      segments.push_back(
          {places, length, places + length + gap, static_cast<std::int32_t>(segments.size())});
      places += length + gap;
    }
  }
};

void test_documents_and_fill() {
  std::mt19937 random(3);
  const std::int32_t fill_value = -1, first_value = -100;
  const Fill fill(&fill_value, sizeof fill_value), first(&first_value, sizeof first_value);
  const auto& runs = *pinfeed::dispatch::active_isa().permute;
  for (int round = 0; round < 500; ++round) {
    const PackCase given(random);
    const bool overwrites = random() % 2;
    std::vector<Sample> samples;
    std::vector<std::int32_t> expected;
    const std::int64_t stride = sizeof(std::int32_t);
    for (std::size_t i = 0; i < given.tokens.size(); ++i) {
      samples.push_back({.data = reinterpret_cast<const std::byte*>(given.tokens[i].data()),
                         .shape = &given.segments[i].data,
                         .strides = &stride,
                         .cast = nullptr,
                         .contiguous = true,
                         .plan = nullptr});
      const std::size_t begin = expected.size();
      expected.insert(expected.end(), given.tokens[i].begin(), given.tokens[i].end());
      if (overwrites) expected[begin] = first_value;
      expected.resize(static_cast<std::size_t>(given.segments[i].end), fill_value);
    }
    std::vector<std::int32_t> out(expected.size() + 1, kUnwritten);
    const PackBatch batch{.samples = samples.data(),
                          .segments = given.segments.data(),
                          .count = samples.size(),
                          .places = given.places,
                          .row_items = 1,
                          .fill = &fill,
                          .first = overwrites ? &first : nullptr,
                          .out = reinterpret_cast<std::byte*>(out.data()),
                          .streaming = random() % 2 == 0};
    const std::size_t half = random() % (samples.size() + 1);
    pack_samples(batch, runs, half, samples.size());
    const std::size_t written =
        half < samples.size() ? static_cast<std::size_t>(given.segments[half].begin) : out.size();
    if (written > 0) CHECK(out[0] == kUnwritten);
    pack_samples(batch, runs, 0, half);
    CHECK(out.back() == kUnwritten);
    out.pop_back();
    CHECK(out == expected);
  }
}

void test_marks() {
  std::vector<std::int64_t> positions(8, kUnwritten);
  std::vector<std::int32_t> documents(8, kUnwritten), numbers(8, kUnwritten);
  std::vector<unsigned char> attention(8, 7);
  PackMarks marks;
  marks.positions = positions.data();
  marks.documents = documents.data();
  marks.numbers = numbers.data();
  marks.attention = attention.data();
  marks.position_start = 2;
  mark_segment({1, 2, 4, 5}, marks);  // two tokens, and room for a third
  mark_segment({4, 0, 7, 6}, marks);  // a tail
  CHECK((positions == std::vector<std::int64_t>{kUnwritten, 2, 3, 4, 2, 3, 4, kUnwritten}));
  CHECK((documents == std::vector<std::int32_t>{kUnwritten, 5, 5, 5, -1, -1, -1, kUnwritten}));
  CHECK((numbers == std::vector<std::int32_t>{kUnwritten, 5, 5, 5, 6, 6, 6, kUnwritten}));
  CHECK((attention == std::vector<unsigned char>{7, 1, 1, 0, 0, 0, 0, 7}));
  mark_segment({0, 8, 8, 0}, PackMarks{});  // nobody asked
}

}  // namespace

void pack_tests() {
  run("documents, and fill behind them", test_documents_and_fill);
  run("marks of documents and tails", test_marks);
}
