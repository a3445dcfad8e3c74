// Plain copies: copy_bytes, gather_rows and StridedCopy.
#include "kernels/copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "kernels/gather.h"
#include "kernels/strided_copy.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::copy_bytes;
using pinfeed::kernels::gather_rows;
using pinfeed::kernels::stores_done;
using pinfeed::kernels::StridedCopy;
using Random = std::mt19937_64;

const GuardedBytes& source_memory() {
  static const GuardedBytes memory(std::size_t{1} << 20);
  return memory;
}

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

// An array of any strides and its contiguous copy, which grows axis by axis.
struct Strided {
  std::size_t item_size;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // bytes

  std::size_t bytes() const {
    std::size_t total = item_size;
    for (const std::int64_t size : shape) total *= static_cast<std::size_t>(size);
    return total;
  }

  void append(const std::uint8_t* from, std::size_t axis, std::vector<std::byte>& to) const {
    if (axis == shape.size()) {
      for (std::size_t i = 0; i < item_size; ++i) to.push_back(std::byte{from[i]});
      return;
    }
    for (std::int64_t i = 0; i < shape[axis]; ++i) append(from + i * strides[axis], axis + 1, to);
  }

  std::string describe() const {
    std::string text = "items of " + std::to_string(item_size) + " bytes, axes (size, stride):";
    for (std::size_t i = 0; i < shape.size(); ++i) {
      text += " (" + std::to_string(shape[i]) + ", " + std::to_string(strides[i]) + ")";
    }
    return text;
  }
};

const std::uint8_t* place_strided(const Strided& array, Random& random) {
  if (array.bytes() == 0) return source_memory().end();  // must not be read
  std::ptrdiff_t lowest = 0, highest = static_cast<std::ptrdiff_t>(array.item_size) - 1;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    const std::ptrdiff_t last = (array.shape[i] - 1) * array.strides[i];
    (last < 0 ? lowest : highest) += last;
  }
  return source_memory().place(lowest, highest, random);
}

void check_strided_on(const pinfeed::kernels::PermuteRuns& runs, const Strided& array,
                      Random& random) {
  const std::uint8_t* const source = place_strided(array, random);
  std::vector<std::byte> all;
  array.append(source, 0, all);

  MarkedOutput out(all.size(), random() % 64);
  const StridedCopy copy(array.shape.size(), array.shape.data(), array.strides.data(),
                         array.item_size);
  const std::size_t rows = copy.rows();
  if (rows * copy.row_bytes() != all.size()) {
    throw std::runtime_error("rows do not add up: " + array.describe());
  }
  const std::size_t begin = random() % (rows + 1), end = begin + random() % (rows + 1 - begin);
  std::vector<std::byte> part(all.size(), MarkedOutput::kMark);
  std::copy(all.begin() + static_cast<std::ptrdiff_t>(begin * copy.row_bytes()),
            all.begin() + static_cast<std::ptrdiff_t>(end * copy.row_bytes()),
            part.begin() + static_cast<std::ptrdiff_t>(begin * copy.row_bytes()));
  copy.run(runs, source, out.data(), begin, end, random() % 2 == 0);
  if (!out.equals(part)) throw std::runtime_error("a range of rows: " + array.describe());
  copy.run(runs, source, out.data(), end, rows, random() % 2 == 0);
  copy.run(runs, source, out.data(), 0, begin, random() % 2 == 0);
  if (!out.equals(all)) throw std::runtime_error("all rows: " + array.describe());
}

void check_strided(const Strided& array, Random& random) {
  for (const pinfeed::dispatch::Isa& isa : pinfeed::dispatch::compiled_isas()) {
    if (isa.supported()) check_strided_on(*isa.permute, array, random);
  }
}

// Strides of a contiguous array whose axes are in a random order in memory, some of them reversed,
// broadcast or with a gap; or any strides at all, not even multiples of the item.
std::vector<std::int64_t> random_strides(const Strided& array, Random& random) {
  const std::size_t axes = array.shape.size();
  std::vector<std::int64_t> strides(axes);
  if (random() % 5 == 0) {
    for (std::int64_t& stride : strides) stride = static_cast<std::int64_t>(random() % 601) - 300;
    return strides;
  }
  std::vector<std::size_t> order(axes);
  for (std::size_t i = 0; i < axes; ++i) order[i] = i;
  if (random() % 3 != 0) std::shuffle(order.begin(), order.end(), random);
  auto step = static_cast<std::int64_t>(array.item_size);
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    const std::uint64_t kind = random() % 10;
    strides[*axis] = kind == 0 ? 0 : kind == 1 ? -step : step;
    step *= std::max<std::int64_t>(array.shape[*axis], 1) + (kind == 2 ? 1 : 0);
  }
  return strides;
}

void test_strided_copy() {
  Random random(3);
  constexpr std::int64_t sizes[] = {0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 16, 33, 65};
  for (int repeat = 0; repeat < 6000; ++repeat) {
    Strided array{std::size_t{1} << random() % 5, {}, {}};
    for (std::size_t axis = random() % 6; axis > 0; --axis) {
      const std::int64_t size = sizes[random() % std::size(sizes)];
      array.shape.push_back(array.bytes() * static_cast<std::size_t>(size) > 20000 ? 2 : size);
    }
    array.strides = random_strides(array, random);
    check_strided(array, random);
  }
}

// Long enough to be cut into the ranges and squares of a transpose.
void test_large_transposes() {
  Random random(4);
  for (const std::size_t item_size : {1, 2, 4, 8, 16}) {
    const auto item = static_cast<std::int64_t>(item_size);
    for (const std::int64_t channels : {1, 2, 2, 3, 3, 4, 4, 5, 31, 32, 33}) {
      // Planes with the same alignment to cache lines, and with different ones.
      const std::int64_t pixels = random() % 2 == 0 ? 1100 : 1088;
      check_strided({item_size, {channels, pixels}, {item, item * channels}}, random);
      check_strided({item_size, {pixels, channels}, {item, item * pixels}}, random);
      check_strided({item_size, {channels, pixels}, {item, -item * channels}}, random);
      check_strided({item_size, {2, pixels / 4, channels}, {item * 8, item * 8, item}}, random);
    }
  }
}

}  // namespace

void copy_tests() {
  run("copy_bytes", test_copy_bytes);
  run("copy_bytes with 4K aliasing", test_4k_aliasing);
  run("gather_rows", test_gather_rows);
  run("StridedCopy of random arrays", test_strided_copy);
  run("StridedCopy of large transposes", test_large_transposes);
}
