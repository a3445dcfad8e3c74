// Fill and repeat_line, against items written one at a time.
#include "kernels/fill.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>

#include "kernels/copy.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/sample_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Fill;
using pinfeed::kernels::kLine;
using pinfeed::kernels::repeat_line;
using pinfeed::kernels::stores_done;

void check_fill(const Fill& fill, const Bytes& item, std::size_t count, std::size_t misalignment) {
  const Bytes expected = repeated(item, count);
  for (const bool streaming : {false, true}) {
    MarkedOutput out(expected.size(), misalignment);
    fill.write(out.data(), count, streaming);
    stores_done();
    if (!out.equals(expected)) {
      throw std::runtime_error(std::to_string(count) + " items of " + std::to_string(item.size()) +
                               " bytes, misaligned by " + std::to_string(misalignment) +
                               (streaming ? ", streaming" : ""));
    }
  }
}

// Numbers of items around a few whole lines, and long ones.
std::set<std::size_t> item_counts(std::size_t item_size) {
  std::set<std::size_t> counts{0, 1, 2, 3, 1000};
  for (std::size_t lines = 1; lines <= 8; ++lines) {
    for (const std::size_t bytes : {lines * kLine - 1, lines * kLine, lines * kLine + item_size}) {
      counts.insert(bytes / item_size);
    }
  }
  return counts;
}

void test_every_misalignment() {
  Random random(1);
  for (const std::size_t item_size : {1, 2, 4, 8, 16}) {
    for (std::size_t misalignment = 0; misalignment < kLine; ++misalignment) {
      Bytes distinct(item_size);
      for (std::size_t i = 0; i < item_size; ++i) distinct[i] = std::byte(random() % 15 * 16 + i);
      const Bytes equal(item_size, distinct[0]);
      Bytes almost = equal;
      almost[random() % item_size] ^= std::byte{1};
      for (const Bytes& item : {distinct, equal, almost}) {
        const Fill fill(item.data(), item_size);
        for (const std::size_t count : item_counts(item_size)) {
          check_fill(fill, item, count, misalignment);
        }
      }
    }
  }
}

// A fill keeps its own item, reads no byte beyond the given one, and can be copied.
void test_items() {
  const GuardedBytes memory(1);
  for (const std::size_t item_size : {1, 2, 4, 8, 16}) {
    Bytes item(item_size);
    for (std::uint8_t* from : {memory.begin(), memory.end() - item_size}) {
      std::memcpy(item.data(), from, item_size);
      const Fill fill(from, item_size);
      std::memset(from, 0, item_size);
      CHECK(fill.item_size() == item_size);
      check_fill(fill, item, 100, 0);
      Fill copy;
      copy = fill;
      check_fill(copy, item, 100, 0);
      std::memcpy(from, item.data(), item_size);
    }
  }
}

void test_default_fill() {
  CHECK(Fill().item_size() == 1);
  for (const std::size_t count : item_counts(1)) {
    check_fill(Fill(), {std::byte{0}}, count, count % 64);
  }
  for (const bool streaming : {false, true}) Fill().write(nullptr, 0, streaming);
}

void test_repeat_line() {
  const GuardedBytes memory(1);
  Random random(3);
  for (std::size_t lines = 0; lines < 40; ++lines) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::uint8_t* const from = memory.place(0, kLine - 1, random);
      Bytes line(kLine);
      std::memcpy(line.data(), from, kLine);
      MarkedOutput out(lines * kLine, 0);
      repeat_line(out.data(), from, lines);
      stores_done();
      CHECK(out.equals(repeated(line, lines)));
    }
  }
}

}  // namespace

void fill_tests() {
  run("Fill at every misalignment", test_every_misalignment);
  run("Fill's item", test_items);
  run("Fill by default", test_default_fill);
  run("repeat_line", test_repeat_line);
}
