// Plain copies: copy_bytes, gather_rows and StridedCopy.
#include "kernels/copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/gather.h"
#include "kernels/strided_copy.h"
#include "tests/check.h"
#include "tests/every_isa.h"
#include "tests/guarded_memory.h"
#include "tests/sample_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Cast;
using pinfeed::kernels::copy_bytes;
using pinfeed::kernels::gather_rows;
using pinfeed::kernels::kScalarTypes;
using pinfeed::kernels::stores_done;
using pinfeed::kernels::StridedCopy;

const std::uint8_t* place_bytes(std::size_t bytes, Random& random) {
  return source_memory().place(0, static_cast<std::ptrdiff_t>(std::max<std::size_t>(bytes, 1)) - 1,
                               random);
}

void test_copy_bytes() {
  Random random(1);
  std::vector<std::size_t> sizes{1000,  1023,  1024,  1025,  1087,  1088,  4096, 4099,
                                 16383, 16384, 16447, 16448, 16511, 32831, 70001};
  for (std::size_t size = 0; size <= 70; ++size) sizes.push_back(size);
  for (const std::size_t size : sizes) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      const std::uint8_t* const from = place_bytes(size, random);
      std::vector<std::byte> expected(size);
      for (std::size_t i = 0; i < size; ++i) expected[i] = std::byte{from[i]};
      MarkedOutput out(size, random() % 64);
      copy_bytes(out.data(), from, size, repeat % 2 == 0);
      stores_done();
      CHECK(out.equals(expected));
    }
  }
}

// Outputs that are up to a line behind their source, modulo whole pages.
void test_4k_aliasing() {
  constexpr std::size_t kPage = 4096, kBytes = 9 * kPage + 100;
  for (const std::size_t size : {2000ul, 20000ul, kBytes}) {
    for (const std::size_t distance : {1, 4, 16, 31, 32, 63, 64}) {
      MarkedOutput out(size, distance % 64);
      std::vector<std::byte> memory(size + kPage), expected(size);
      const auto ahead = reinterpret_cast<std::uintptr_t>(out.data()) - distance -
                         reinterpret_cast<std::uintptr_t>(memory.data());
      std::byte* const from = memory.data() + ahead % kPage;
      for (std::size_t i = 0; i < size; ++i) expected[i] = from[i] = std::byte(i * 7 + i / 251);
      copy_bytes(out.data(), from, size, true);
      stores_done();
      CHECK(out.equals(expected));
    }
  }
}

void check_gather(std::size_t row_bytes, std::size_t count, Random& random) {
  std::vector<const void*> rows(count);
  for (const void*& row : rows) row = place_bytes(row_bytes, random);
  const std::size_t begin = random() % (count + 1), end = begin + random() % (count + 1 - begin);

  std::vector<std::byte> part(count * row_bytes, MarkedOutput::kMark), all = part;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t byte = 0; byte < row_bytes; ++byte) {
      const std::byte value{static_cast<const std::uint8_t*>(rows[i])[byte]};
      all[i * row_bytes + byte] = value;
      if (i >= begin && i < end) part[i * row_bytes + byte] = value;
    }
  }
  MarkedOutput out(count * row_bytes, random() % 64);
  const bool streaming = random() % 2 == 0;
  gather_rows(rows.data(), row_bytes, out.data(), begin, end, streaming);
  CHECK(out.equals(part));
  gather_rows(rows.data(), row_bytes, out.data(), 0, begin, streaming);
  gather_rows(rows.data(), row_bytes, out.data(), end, count, streaming);
  CHECK(out.equals(all));
}

void test_gather_rows() {
  Random random(2);
  std::vector<std::size_t> sizes{1000, 4096, 4099, 100000};
  for (std::size_t size = 0; size <= 70; ++size) sizes.push_back(size);
  for (const std::size_t row_bytes : sizes) {
    for (const std::size_t count : {0, 1, 2, 13}) check_gather(row_bytes, count, random);
  }
}

// Copies an array, cast if its type is another, in ranges of rows.
void check_strided(const Isa& isa, const SampleCase& array, ScalarType to, Random& random) {
  Bytes expected;
  if (product(array.shape) > 0) append_items(isa, array, 0, array.data, to, expected);
  const auto cast = array.type == to ? Cast{} : isa.casts->find(array.type, to);
  const StridedCopy copy(array.shape.size(), array.shape.data(), array.strides.data(),
                         scalar_size(array.type), cast, scalar_size(to));
  std::vector<std::size_t> offsets;
  for (std::size_t row = 0; row <= copy.rows(); ++row) offsets.push_back(row * copy.row_bytes());
  const auto write = [&](std::byte* out, std::size_t begin, std::size_t end) {
    copy.run(*isa.permute, array.data, out, begin, end, random() % 2 == 0);
  };
  if (offsets.back() != expected.size() || !writes_rows(expected, offsets, random, write)) {
    throw std::runtime_error(array.describe() + " to type " + std::to_string(static_cast<int>(to)));
  }
}

void test_strided_copy(const Isa& isa) {
  Random random(3);
  constexpr std::int64_t sizes[] = {0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 16, 33, 65};
  for (int repeat = 0; repeat < 6000; ++repeat) {
    Shape shape;
    for (std::size_t axis = random() % 6; axis > 0; --axis) {
      const std::int64_t size = sizes[random() % std::size(sizes)];
      shape.push_back(product(shape) * static_cast<std::size_t>(size) > 3000 ? 2 : size);
    }
    const ScalarType to = random_type(random);
    check_strided(isa, random_sample(to, shape, random), to, random);
  }
}

// Long enough to be cut into the ranges and squares of a transpose, and into tiles of a cast.
void test_large_arrays(const Isa& isa) {
  Random random(4);
  for (std::size_t number = 0; number < 6 * kScalarTypes; ++number) {
    const auto to = static_cast<ScalarType>(number % kScalarTypes);
    const ScalarType from = random_sample(to, {}, random).type;
    const auto item = static_cast<std::int64_t>(scalar_size(from));
    std::vector<std::pair<Shape, Shape>> layouts = {
        {{5000}, {item}},
        {{5000}, {-item}},
        {{700}, {3 * item + 1}},
        {{2, 70, 31}, {31 * 70 * item, item, 70 * item}},  // transposed
        {{45, 600}, {item, 45 * item}},                    // in parts of both axes
        {{20, 9, 5}, {13 * 5 * item, 5 * item, item}},     // cropped
        {{9, 20, 2, 3}, {-40 * item, 2 * item, 0, -7}}};   // reversed and broadcast
    for (const std::int64_t channels : {1, 2, 3, 4, 5, 31, 32, 33}) {
      // Planes with the same alignment to cache lines, and with different ones.
      const std::int64_t pixels = random() % 2 == 0 ? 1100 : 1088;
      layouts.push_back({{channels, pixels}, {item, item * channels}});
      layouts.push_back({{pixels, channels}, {item, item * pixels}});
      layouts.push_back({{channels, pixels}, {item, -item * channels}});
      layouts.push_back({{2, pixels / 4, channels}, {item * 8, item * 8, item}});
    }
    for (const auto& [shape, strides] : layouts) {
      SampleCase array{from, shape, strides};
      array.data = reinterpret_cast<const std::byte*>(
          source_memory().place(shape, strides, scalar_size(from), random));
      check_strided(isa, array, to, random);
    }
  }
}

}  // namespace

void copy_tests() {
  run("copy_bytes", test_copy_bytes);
  run("copy_bytes with 4K aliasing", test_4k_aliasing);
  run("gather_rows", test_gather_rows);
  run_on_isas("StridedCopy of random arrays", test_strided_copy);
  run_on_isas("StridedCopy of large arrays", test_large_arrays);
}
