// pad_jagged and unpad_to_jagged of csrc/cuda against rows copied one at a time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/jagged_plan.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/run_on_cpu.h"
#include "tests/sample_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::cuda::work_of;
using pinfeed::kernels::JaggedShape;
using pinfeed::kernels::PadJagged;
using pinfeed::kernels::UnpadToJagged;

struct JaggedCase {
  std::vector<std::int64_t> offsets;
  JaggedShape shape;
  bool ascending = true;

  std::string describe() const {
    return to_text(offsets) + " of " + std::to_string(shape.total) + " rows of " +
           std::to_string(shape.row_bytes) + " bytes, boxes of " + std::to_string(shape.length) +
           ", at most " + std::to_string(shape.max_rows) + (shape.left ? ", left" : "") +
           ", fill of " + std::to_string(shape.fill.size);
  }
};

// The row of the values at a position of the padded batch, or -1.
std::int64_t row_of(const JaggedCase& test, std::int64_t sample, std::int64_t step) {
  const JaggedShape& shape = test.shape;
  const std::int64_t begin = std::clamp<std::int64_t>(test.offsets[sample], 0, shape.total);
  const std::int64_t end =
      std::max(begin, std::clamp<std::int64_t>(test.offsets[sample + 1], 0, shape.total));
  const std::int64_t rows = std::min(end - begin, shape.max_rows);
  if (shape.left) {
    const std::int64_t from_end = shape.length - step;  // 1: the last
    return from_end <= rows ? end - from_end : -1;
  }
  return step < rows ? begin + step : -1;
}

std::int64_t place_of(const JaggedShape& shape, std::int64_t sample, std::int64_t step) {
  return sample * shape.length + step;
}

// Writes a row, or fill where `from` is null.
void put_row(const JaggedShape& shape, const std::uint8_t* from, std::byte* to) {
  for (std::int64_t i = 0; i < shape.row_bytes; ++i) {
    to[i] = std::byte{from != nullptr
                          ? from[i]
                          : shape.fill.bytes[static_cast<std::size_t>(i % shape.fill.size)]};
  }
}

const std::uint8_t* place_bytes(std::int64_t bytes, Random& random) {
  if (bytes == 0) return nullptr;
  const std::uint8_t* place = source_memory().place(0, bytes - 1, random);
  if (random() % 2 == 0 && place - source_memory().begin() >= 16) {
    place -= reinterpret_cast<std::uintptr_t>(place) % 16;
  }
  return place;
}

void check_pad(const JaggedCase& test, Random& random) {
  const JaggedShape& shape = test.shape;
  const std::uint8_t* const values = place_bytes(shape.total * shape.row_bytes, random);
  const std::int64_t places = shape.count * shape.length;
  Bytes expected(static_cast<std::size_t>(places * shape.row_bytes));
  for (std::int64_t sample = 0; sample < shape.count; ++sample) {
    for (std::int64_t step = 0; step < shape.length; ++step) {
      const std::int64_t row = row_of(test, sample, step);
      const std::int64_t place = place_of(shape, sample, step);
      put_row(shape, row < 0 ? nullptr : values + row * shape.row_bytes,
              expected.data() + place * shape.row_bytes);
    }
  }
  MarkedOutput out(expected.size(), 0);
  const PadJagged pad{.shape = shape, .values = values, .out = out.data()};
  run_on_cpu(work_of(pad), random);
  if (!out.equals(expected)) throw std::runtime_error("pad: " + test.describe());
}

// Whether each byte of `out` belongs to a sample that has its row, or is fill where none has. With
// offsets that don't ascend, several samples may.
bool is_unpadded(const JaggedCase& test, const std::uint8_t* padded, const std::byte* out) {
  const JaggedShape& shape = test.shape;
  std::vector<std::vector<std::int64_t>> places(static_cast<std::size_t>(shape.total));
  for (std::int64_t sample = 0; sample < shape.count; ++sample) {
    for (std::int64_t step = 0; step < shape.length; ++step) {
      const std::int64_t row = row_of(test, sample, step);
      if (row >= 0) places[row].push_back(place_of(shape, sample, step));
    }
  }
  Bytes expected(static_cast<std::size_t>(shape.row_bytes));
  for (std::int64_t row = 0; row < shape.total; ++row) {
    const std::byte* const written = out + row * shape.row_bytes;
    std::vector<bool> known(static_cast<std::size_t>(shape.row_bytes));
    const auto compare = [&](const std::uint8_t* from) {
      put_row(shape, from, expected.data());
      for (std::size_t i = 0; i < known.size(); ++i) {
        if (written[i] == expected[i]) known[i] = true;
      }
    };
    for (const std::int64_t place : places[row]) compare(padded + place * shape.row_bytes);
    if (places[row].empty() || !test.ascending) compare(nullptr);
    if (std::find(known.begin(), known.end(), false) != known.end()) return false;
  }
  return true;
}

void check_unpad(const JaggedCase& test, Random& random) {
  const JaggedShape& shape = test.shape;
  const std::int64_t places = shape.count * shape.length;
  const std::uint8_t* const padded = place_bytes(places * shape.row_bytes, random);
  const auto bytes = static_cast<std::size_t>(shape.total * shape.row_bytes);
  MarkedOutput out(bytes, 0);
  const UnpadToJagged unpad{.shape = shape, .padded = padded, .out = out.data()};
  run_on_cpu(work_of(unpad), random);
  const Bytes written(out.data(), out.data() + bytes);
  if (!is_unpadded(test, padded, out.data()) || !out.equals(written)) {
    throw std::runtime_error("unpad: " + test.describe());
  }
}

JaggedCase random_case(std::int64_t count, std::int64_t longest, std::int64_t row_bytes,
                       Random& random) {
  JaggedCase test;
  test.offsets.push_back(random() % 3 == 0 ? static_cast<std::int64_t>(random() % 4) : 0);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto length =
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest + 1));
    test.offsets.push_back(test.offsets.back() + (random() % 6 == 0 ? 0 : length));
  }
  JaggedShape& shape = test.shape;
  shape.count = count;
  shape.total = test.offsets.back() + static_cast<std::int64_t>(random() % 3);
  shape.length = random() % 3 == 0 ? static_cast<std::int64_t>(random() % 20) : longest;
  shape.max_rows =
      random() % 3 == 0
          ? static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape.length + 1))
          : shape.length;
  shape.row_bytes = row_bytes;
  shape.left = random() % 2 == 0;
  do shape.fill.size = std::int64_t{1} << random() % 5;
  while (row_bytes % shape.fill.size != 0);
  for (std::uint8_t& byte : shape.fill.bytes) byte = static_cast<std::uint8_t>(random());
  return test;
}

void check_both(JaggedCase& test, Random& random) {
  test.shape.offsets = test.offsets.data();
  check_pad(test, random);
  check_unpad(test, random);
}

void test_random_batches() {
  Random random(1);
  constexpr std::int64_t kRowBytes[] = {1, 1, 2, 2, 3, 4, 4, 6, 8, 8, 12, 16, 20, 32, 48, 100, 0};
  for (int repeat = 0; repeat < 3000; ++repeat) {
    JaggedCase test = random_case(static_cast<std::int64_t>(random() % 8),
                                  static_cast<std::int64_t>(random() % 60),
                                  kRowBytes[random() % std::size(kRowBytes)], random);
    check_both(test, random);
  }
}

void test_long_batches() {
  Random random(2);
  for (const std::int64_t row_bytes : {1, 2, 4, 8, 16, 24, 512}) {
    for (int repeat = 0; repeat < 6; ++repeat) {
      JaggedCase test = random_case(40, 20000 / (40 * row_bytes) * 20 + 3, row_bytes, random);
      check_both(test, random);
    }
  }
}

void test_hostile_offsets() {
  Random random(3);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const std::int64_t row_bytes = std::int64_t{1} << random() % 6;
    JaggedCase test = random_case(static_cast<std::int64_t>(1 + random() % 8),
                                  static_cast<std::int64_t>(random() % 40), row_bytes, random);
    for (std::int64_t& offset : test.offsets) {
      constexpr std::int64_t kWild[] = {INT64_MIN, INT64_MAX, -1, INT64_MIN + 1, INT64_MAX - 1};
      const auto near = static_cast<std::int64_t>(random() % 100) - 50;
      if (random() % 3 == 0) offset = kWild[random() % std::size(kWild)];
      if (random() % 3 == 0) offset = near;
      if (random() % 9 == 0) offset = static_cast<std::int64_t>(random());
    }
    test.ascending = false;
    check_both(test, random);
  }
}

}  // namespace

void cuda_jagged_tests() {
  run("device jagged: random batches", test_random_batches);
  run("device jagged: long batches", test_long_batches);
  run("device jagged: hostile offsets", test_hostile_offsets);
}
