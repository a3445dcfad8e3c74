// pack_samples and write_token_outputs, against items written one at a time.
#include "kernels/pack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/every_isa.h"
#include "tests/guarded_memory.h"
#include "tests/sample_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Fill;
using pinfeed::kernels::pack_samples;
using pinfeed::kernels::PackBatch;
using pinfeed::kernels::Segment;
using pinfeed::kernels::TokenOutputs;
using pinfeed::kernels::write_token_outputs;

// Samples whose rows have one shape, and this many rows of gaps before the first and behind each.
struct PackCase {
  ScalarType type;
  Shape row_shape;
  std::int64_t before = 0;
  std::vector<SampleCase> samples = {};
  std::vector<std::int64_t> gaps = {};

  void add(std::int64_t length, std::int64_t gap, Random& random) {
    Shape shape = row_shape;
    shape.insert(shape.begin(), length);
    samples.push_back(random_sample(type, shape, random));
    gaps.push_back(gap);
  }

  std::string describe() const {
    std::string text = "to type " + std::to_string(static_cast<int>(type)) + ", gaps " +
                       to_text(gaps) + " behind " + std::to_string(before);
    for (const SampleCase& sample : samples) text += "; " + sample.describe();
    return text;
  }
};

void check_pack(const Isa& isa, const PackCase& test, Random& random) {
  const std::size_t row_items = product(test.row_shape), item_size = scalar_size(test.type);
  Bytes fill_item(item_size), first_item(item_size);
  for (std::byte& byte : fill_item) byte = static_cast<std::byte>(random());
  for (std::byte& byte : first_item) byte = static_cast<std::byte>(random());
  const Fill fill(fill_item.data(), item_size), first(first_item.data(), item_size);
  const bool overwrites = random() % 2 == 0;

  // The kernel does not write the rows before the first sample.
  Bytes expected(static_cast<std::size_t>(test.before) * row_items * item_size,
                 MarkedOutput::kMark);
  std::vector<std::size_t> offsets{expected.size()};
  std::vector<Segment> segments;
  std::int64_t tokens = test.before;
  for (std::size_t i = 0; i < test.samples.size(); ++i) {
    const SampleCase& sample = test.samples[i];
    const std::int64_t begin = tokens, length = sample.shape[0];
    tokens += length + test.gaps[i];
    segments.push_back({begin, length, tokens, static_cast<std::int32_t>(i)});
    if (product(sample.shape) > 0) {
      append_items(isa, sample, 0, sample.data, test.type, expected);
      if (overwrites) {
        const Bytes row = repeated(first_item, row_items);
        std::copy(row.begin(), row.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(offsets.back()));
      }
    }
    const Bytes gap = repeated(fill_item, static_cast<std::size_t>(test.gaps[i]) * row_items);
    expected.insert(expected.end(), gap.begin(), gap.end());
    offsets.push_back(expected.size());
  }
  for (const bool streaming : {false, true}) {
    const SampleList samples(
        isa, test.samples, test.type, [](const Shape&) { return std::size_t{0}; }, random);
    const auto write = [&](std::byte* out, std::size_t begin, std::size_t end) {
      const PackBatch batch{.samples = samples.data(),
                            .segments = segments.data(),
                            .count = segments.size(),
                            .tokens = tokens,
                            .row_items = row_items,
                            .fill = &fill,
                            .first = overwrites ? &first : nullptr,
                            .out = out,
                            .streaming = streaming};
      pack_samples(batch, *isa.permute, begin, end);
    };
    if (!writes_rows(expected, offsets, random, write)) {
      throw std::runtime_error(test.describe() + (streaming ? "; streaming" : ""));
    }
  }
}

void test_random_batches(const Isa& isa) {
  Random random(1);
  constexpr std::int64_t sizes[] = {1, 1, 2, 3, 4, 5, 17, 70};
  for (int repeat = 0; repeat < 2000; ++repeat) {
    PackCase test{random_type(random), {}, static_cast<std::int64_t>(random() % 3)};
    for (std::size_t axis = random() % 4; axis > 0; --axis) {
      const bool empty = random() % 40 == 0;
      const std::int64_t size = empty ? 0 : sizes[random() % std::size(sizes)];
      test.row_shape.push_back(product(test.row_shape) > 100 ? 1 : size);
    }
    const std::size_t longest = 400 / std::max<std::size_t>(product(test.row_shape), 1) + 1;
    const bool has_gaps = random() % 2 == 0;
    for (std::size_t count = random() % 8; count > 0; --count) {
      const std::size_t gap = has_gaps && random() % 2 == 0 ? random() % (longest + 1) : 0;
      test.add(static_cast<std::int64_t>(random() % (longest + 1)), static_cast<std::int64_t>(gap),
               random);
    }
    check_pack(isa, test, random);
  }
}

void test_every_length(const Isa& isa) {
  Random random(2);
  for (const std::int64_t columns : {0, 1, 3}) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      PackCase test{random_type(random), {columns}};
      for (std::int64_t length = 0; length <= 40; ++length) test.add(length, 0, random);
      std::shuffle(test.samples.begin(), test.samples.end(), random);
      check_pack(isa, test, random);
    }
  }
}

// Long enough for streaming stores and for more than one tile.
void test_long_samples(const Isa& isa) {
  Random random(3);
  for (const Shape& row_shape : {Shape{}, Shape{3}, Shape{64}, Shape{7, 5}}) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      PackCase test{random_type(random), row_shape};
      const auto rows = static_cast<std::int64_t>(8000 / product(row_shape));
      for (const std::int64_t length : {rows, rows / 2, std::int64_t{1}, rows / 3}) {
        test.add(length, repeat % 2 * rows / 5, random);
      }
      check_pack(isa, test, random);
    }
  }
}

void test_marks() {
  constexpr std::int32_t kUnwritten = -77;
  std::vector<std::int64_t> positions(8, kUnwritten);
  std::vector<std::int32_t> documents(8, kUnwritten), numbers(8, kUnwritten);
  std::vector<unsigned char> attention(8, 7);
  TokenOutputs outputs;
  outputs.positions = positions.data();
  outputs.documents = documents.data();
  outputs.numbers = numbers.data();
  outputs.attention = attention.data();
  outputs.position_start = 2;
  write_token_outputs({1, 2, 4, 5}, outputs);  // two tokens, and space for a third
  write_token_outputs({4, 0, 7, 6}, outputs);  // the end of a row
  CHECK((positions == std::vector<std::int64_t>{kUnwritten, 2, 3, 4, 2, 3, 4, kUnwritten}));
  CHECK((documents == std::vector<std::int32_t>{kUnwritten, 5, 5, 5, -1, -1, -1, kUnwritten}));
  CHECK((numbers == std::vector<std::int32_t>{kUnwritten, 5, 5, 5, 6, 6, 6, kUnwritten}));
  CHECK((attention == std::vector<unsigned char>{7, 1, 1, 0, 0, 0, 0, 7}));
  write_token_outputs({0, 8, 8, 0}, TokenOutputs{});  // nothing requested
}

}  // namespace

void pack_tests() {
  run_on_isas("pack_samples: random batches", test_random_batches);
  run_on_isas("pack_samples: every length", test_every_length);
  run_on_isas("pack_samples: long samples", test_long_samples);
  run("positions and ids of documents and tails", test_marks);
}
