// pad_samples against items written one at a time.
#include "kernels/pad.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/every_isa.h"
#include "tests/guarded_memory.h"
#include "tests/sample_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::block_axis;
using pinfeed::kernels::Fill;
using pinfeed::kernels::pad_samples;
using pinfeed::kernels::PadBatch;

struct PadCase {
  ScalarType type;
  Shape box;
  bool left;
  Bytes padding = {};  // one item
  std::vector<SampleCase> samples = {};

  std::string describe() const {
    std::string text = "to type " + std::to_string(static_cast<int>(type)) + ", box " +
                       to_text(box) + (left ? ", left" : "");
    for (const SampleCase& sample : samples) text += "; " + sample.describe();
    return text;
  }
};

// The byte offset in a sample of an item of its box; none for padding.
std::optional<std::ptrdiff_t> find_item(const PadCase& test, const SampleCase& sample,
                                        std::size_t item) {
  std::ptrdiff_t offset = 0;
  for (std::size_t axis = test.box.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(test.box[axis]);
    auto index = static_cast<std::int64_t>(item % size);
    if (test.left) index -= test.box[axis] - sample.shape[axis];
    if (index < 0 || index >= sample.shape[axis]) return std::nullopt;
    offset += index * sample.strides[axis];
    item /= size;
  }
  return offset;
}

struct Expected {
  Bytes values;
  std::vector<std::size_t> offsets;  // of each box
};

Expected define(const Isa& isa, const PadCase& test) {
  const std::size_t items = product(test.box), item_size = scalar_size(test.type);
  Bytes values(test.samples.size() * items * item_size);
  for (std::size_t i = 0; i < test.samples.size(); ++i) {
    const SampleCase& sample = test.samples[i];
    for (std::size_t item = 0; item < items; ++item) {
      std::byte* const to = &values[(i * items + item) * item_size];
      const std::optional<std::ptrdiff_t> offset = find_item(test, sample, item);
      if (offset) {
        write_item(isa, sample.type, sample.data + *offset, test.type, to);
      } else {
        std::memcpy(to, test.padding.data(), item_size);
      }
    }
  }
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i <= test.samples.size(); ++i) offsets.push_back(i * items * item_size);
  return {values, offsets};
}

Shape inner_items(const Shape& box) {
  Shape inner;
  for (std::size_t axis = 1; axis <= box.size(); ++axis) {
    inner.push_back(static_cast<std::int64_t>(product(box, axis)));
  }
  return inner;
}

void check_values(const Isa& isa, const PadCase& test, const Expected& expected, Random& random) {
  const Shape inner = inner_items(test.box);
  const Fill fill(test.padding.data(), scalar_size(test.type));
  const auto find_block = [&](const Shape& shape) {
    return block_axis(shape.data(), test.box.data(), test.box.size());
  };
  for (const bool streaming : {false, true}) {
    const SampleList samples(isa, test.samples, test.type, find_block, random);
    const auto write = [&](std::byte* out, std::size_t begin, std::size_t end) {
      const PadBatch batch{.samples = samples.data(),
                           .count = test.samples.size(),
                           .axes = test.box.size(),
                           .box = test.box.data(),
                           .inner = inner.data(),
                           .left = test.left,
                           .fill = &fill,
                           .out = out,
                           .streaming = streaming};
      pad_samples(batch, *isa.permute, begin, end);
    };
    if (!writes_rows(expected.values, expected.offsets, random, write)) {
      throw std::runtime_error(test.describe() + (streaming ? "; streaming" : ""));
    }
  }
}

void check_case(const Isa& isa, const PadCase& test, Random& random) {
  check_values(isa, test, define(isa, test), random);
}

// A batch without samples. Its padding is random bits, or one repeated byte.
PadCase empty_case(ScalarType type, Shape box, Random& random) {
  PadCase test{type, std::move(box), random() % 2 == 0};
  test.padding.resize(scalar_size(type), static_cast<std::byte>(random() & 0xff));
  if (random() % 3 != 0) {
    for (std::byte& byte : test.padding) byte = static_cast<std::byte>(random() & 0xff);
  }
  return test;
}

// Adds a sample that fills its box along some axes.
void add_any(PadCase& test, Random& random) {
  Shape shape = test.box;
  for (std::int64_t& size : shape) {
    if (random() % 2 == 0) {
      size = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size + 1));
    }
  }
  test.samples.push_back(random_sample(test.type, shape, random));
}

void test_random_batches(const Isa& isa) {
  Random random(1);
  constexpr std::int64_t sizes[] = {1, 1, 2, 2, 3, 3, 4, 5, 7, 15, 16, 17, 31, 33, 48, 300};
  for (int repeat = 0; repeat < 3000; ++repeat) {
    Shape box;
    for (std::size_t axis = 1 + random() % 4; axis > 0; --axis) {
      const std::int64_t size = sizes[random() % std::size(sizes)];
      const bool large = product(box) * static_cast<std::size_t>(size) > 500;
      box.push_back(random() % 50 == 0 ? 0 : large ? 2 : size);
    }
    PadCase test = empty_case(random_type(random), box, random);
    for (std::size_t count = random() % 7; count > 0; --count) add_any(test, random);
    check_case(isa, test, random);
  }
}

// Samples of one axis and of more, at every beginning and end of the data.
void test_every_length(const Isa& isa) {
  Random random(2);
  for (const Shape& box : {Shape{70}, Shape{40, 3}, Shape{3, 40}, Shape{2, 40, 2}}) {
    const std::size_t long_axis = box.size() == 1 || box[0] == 40 ? 0 : 1;
    for (int repeat = 0; repeat < 16; ++repeat) {
      PadCase test = empty_case(random_type(random), box, random);
      for (std::int64_t length = 0; length <= box[long_axis]; ++length) {
        Shape shape = box;
        shape[long_axis] = length;
        test.samples.push_back(random_sample(test.type, shape, random));
      }
      std::shuffle(test.samples.begin(), test.samples.end(), random);
      check_case(isa, test, random);
    }
  }
}

// Long enough for streaming stores and for more than one tile.
void test_long_samples(const Isa& isa) {
  Random random(3);
  for (const Shape& box : {Shape{8000}, Shape{2, 4000}, Shape{2600, 3}, Shape{3, 2600},
                           Shape{90, 80}, Shape{2, 3, 1100}, Shape{20, 19, 18}}) {
    for (int repeat = 0; repeat < 8; ++repeat) {
      PadCase test = empty_case(random_type(random), box, random);
      for (int i = 0; i < 3; ++i) add_any(test, random);
      check_case(isa, test, random);
    }
  }
}

void test_all_or_nothing(const Isa& isa) {
  Random random(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Shape box(1 + random() % 4, static_cast<std::int64_t>(random() % 5));
    PadCase full = empty_case(random_type(random), box, random);
    PadCase empty = empty_case(random_type(random), box, random);
    for (std::size_t count = 1 + random() % 3; count > 0; --count) {
      full.samples.push_back(random_sample(full.type, box, random));
      Shape nothing = box;
      nothing[random() % box.size()] = 0;
      empty.samples.push_back(random_sample(empty.type, nothing, random));
    }
    check_case(isa, full, random);
    check_case(isa, empty, random);
  }
}

// All small shapes in all small boxes.
void test_block_axis() {
  constexpr std::size_t max_axes = 4, sizes = 3;
  for (std::size_t number = 0; number < 6561; ++number) {  // of shape and box, 3^(2 * 4)
    Shape shape, box;
    std::size_t rest = number;
    for (std::size_t axis = 0; axis < max_axes; ++axis) {
      shape.push_back(static_cast<std::int64_t>(rest % sizes));
      box.push_back(static_cast<std::int64_t>(rest / sizes % sizes));
      rest /= sizes * sizes;
    }
    for (std::size_t axes = 1; axes <= max_axes; ++axes) {
      const auto is_block = [&](std::size_t axis) {
        for (std::size_t later = axis + 1; later < axes; ++later) {
          if (shape[later] != box[later]) return false;
        }
        return true;
      };
      std::size_t expected = 0;
      while (!is_block(expected)) ++expected;
      CHECK(block_axis(shape.data(), box.data(), axes) == expected);
    }
  }
}

}  // namespace

void pad_tests() {
  run("block_axis", test_block_axis);
  run_on_isas("padding: random batches", test_random_batches);
  run_on_isas("padding: every length", test_every_length);
  run_on_isas("padding: long samples", test_long_samples);
  run_on_isas("padding: all or nothing", test_all_or_nothing);
}
