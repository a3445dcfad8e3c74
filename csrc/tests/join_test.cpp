// join_samples, against items written one at a time.
#include "kernels/join.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/sample_case.h"

namespace {

using namespace pinfeed::tests;

// Samples whose rows have one shape.
struct JoinCase {
  ScalarType type;
  Shape row_shape;
  std::vector<SampleCase> samples = {};

  void add(std::int64_t length, Random& random) {
    Shape shape = row_shape;
    shape.insert(shape.begin(), length);
    samples.push_back(random_sample(type, shape, random));
  }

  std::string describe() const {
    std::string text = "to type " + std::to_string(static_cast<int>(type));
    for (const SampleCase& sample : samples) text += "; " + sample.describe();
    return text;
  }
};

// Adds all items of a sample from an axis on to a batch.
void append_items(const Isa& isa, const SampleCase& sample, std::size_t axis, const std::byte* from,
                  ScalarType to, Bytes& out) {
  if (axis == sample.shape.size()) {
    out.resize(out.size() + scalar_size(to));
    return write_item(isa, sample.type, from, to, &out[out.size() - scalar_size(to)]);
  }
  for (std::int64_t i = 0; i < sample.shape[axis]; ++i) {
    append_items(isa, sample, axis + 1, from + i * sample.strides[axis], to, out);
  }
}

void check_join(const Isa& isa, const JoinCase& test, Random& random) {
  const std::size_t row_items = product(test.row_shape), item_size = scalar_size(test.type);
  // The rows before the first sample are not the kernel's.
  Shape starts{static_cast<std::int64_t>(random() % 3)};
  Bytes expected(static_cast<std::size_t>(starts[0]) * row_items * item_size, MarkedOutput::kMark);
  std::vector<std::size_t> offsets{expected.size()};
  for (const SampleCase& sample : test.samples) {
    starts.push_back(starts.back() + sample.shape[0]);
    if (product(sample.shape) > 0) {
      append_items(isa, sample, 0, sample.data, test.type, expected);
    }
    offsets.push_back(expected.size());
  }
  for (const bool streaming : {false, true}) {
    const SampleList samples(
        isa, test.samples, test.type, [](const Shape&) { return std::size_t{0}; }, random);
    const auto write = [&](std::byte* out, std::size_t begin, std::size_t end) {
      pinfeed::kernels::join_samples(samples.data(), starts.data(), row_items, item_size,
                                     *isa.permute, out, streaming, begin, end);
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
    JoinCase test{random_type(random), {}};
    for (std::size_t axis = random() % 4; axis > 0; --axis) {
      const bool empty = random() % 40 == 0;
      const std::int64_t size = empty ? 0 : sizes[random() % std::size(sizes)];
      test.row_shape.push_back(product(test.row_shape) > 100 ? 1 : size);
    }
    const std::size_t longest = 400 / std::max<std::size_t>(product(test.row_shape), 1) + 1;
    for (std::size_t count = random() % 8; count > 0; --count) {
      test.add(static_cast<std::int64_t>(random() % (longest + 1)), random);
    }
    check_join(isa, test, random);
  }
}

void test_every_length(const Isa& isa) {
  Random random(2);
  for (const std::int64_t columns : {0, 1, 3}) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      JoinCase test{random_type(random), {columns}};
      for (std::int64_t length = 0; length <= 40; ++length) test.add(length, random);
      std::shuffle(test.samples.begin(), test.samples.end(), random);
      check_join(isa, test, random);
    }
  }
}

// Long enough for streaming stores and for more than one tile.
void test_long_samples(const Isa& isa) {
  Random random(3);
  for (const Shape& row_shape : {Shape{}, Shape{3}, Shape{64}, Shape{7, 5}}) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      JoinCase test{random_type(random), row_shape};
      const auto rows = static_cast<std::int64_t>(8000 / product(row_shape));
      for (const std::int64_t length : {rows, rows / 2, std::int64_t{1}, rows / 3}) {
        test.add(length, random);
      }
      check_join(isa, test, random);
    }
  }
}

}  // namespace

void join_tests() {
  for (const Isa& isa : pinfeed::dispatch::compiled_isas()) {
    const auto run_isa = [&](const char* name, void (*test)(const Isa&)) {
      const std::string full = "join_samples on " + std::string(isa.name) + ": " + name;
      run_if(isa.supported(), "this CPU does not have it", full.c_str(), [&] { test(isa); });
    };
    run_isa("random batches", test_random_batches);
    run_isa("every length", test_every_length);
    run_isa("long samples", test_long_samples);
  }
}
