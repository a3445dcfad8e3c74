// Samples to test with: of any type, size and memory layout; and checks of kernels that write them
// in ranges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/dispatch.h"
#include "kernels/cast.h"
#include "kernels/sample.h"
#include "tests/guarded_memory.h"

namespace pinfeed::tests {

using dispatch::Isa;
using kernels::scalar_size;
using kernels::ScalarType;
using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;
using Shape = std::vector<std::int64_t>;

inline std::size_t product(const Shape& shape, std::size_t first_axis = 0) {
  std::size_t items = 1;
  for (std::size_t i = first_axis; i < shape.size(); ++i) {
    items *= static_cast<std::size_t>(shape[i]);
  }
  return items;
}

inline std::string to_text(const Shape& numbers) {
  std::string text = "(";
  for (const std::int64_t number : numbers) text += std::to_string(number) + ",";
  return text + ")";
}

struct SampleCase {
  ScalarType type;
  Shape shape;
  Shape strides;  // bytes
  const std::byte* data = nullptr;

  // Whether the items from an axis on are contiguous.
  bool contiguous(std::size_t first_axis) const {
    if (product(shape, first_axis) == 0) return true;
    auto step = static_cast<std::int64_t>(scalar_size(type));
    for (std::size_t axis = shape.size(); axis-- > first_axis;) {
      if (shape[axis] == 1) continue;
      if (strides[axis] != step) return false;
      step *= shape[axis];
    }
    return true;
  }

  std::string describe() const {
    return "type " + std::to_string(static_cast<int>(type)) + to_text(shape) + " by " +
           to_text(strides);
  }
};

// The result of one item in a batch of another type, or of the same.
inline void write_item(const Isa& isa, ScalarType from_type, const std::byte* from,
                       ScalarType to_type, std::byte* to) {
  if (from_type == to_type) {
    std::memcpy(to, from, scalar_size(to_type));
  } else {
    isa.casts->find(from_type, to_type)(from, 1, to);
  }
}

// Adds all items of a sample from an axis on to a batch.
inline void append_items(const Isa& isa, const SampleCase& sample, std::size_t axis,
                         const std::byte* from, ScalarType to, Bytes& out) {
  if (axis == sample.shape.size()) {
    out.resize(out.size() + scalar_size(to));
    return write_item(isa, sample.type, from, to, &out[out.size() - scalar_size(to)]);
  }
  for (std::int64_t i = 0; i < sample.shape[axis]; ++i) {
    append_items(isa, sample, axis + 1, from + i * sample.strides[axis], to, out);
  }
}

inline Bytes repeated(const Bytes& item, std::size_t items) {
  Bytes bytes;
  for (std::size_t i = 0; i < items; ++i) bytes.insert(bytes.end(), item.begin(), item.end());
  return bytes;
}

inline ScalarType any_type(Random& random) {
  return static_cast<ScalarType>(random() % kernels::kScalarTypes);
}

// Items of 1, 2, 4, 8 and 16 bytes equally often.
inline ScalarType random_type(Random& random) {
  const std::size_t size = std::size_t{1} << random() % 5;
  ScalarType type = any_type(random);
  while (scalar_size(type) != size) type = any_type(random);
  return type;
}

// Strides of a contiguous array, of a part of a larger one, of one whose axes are in any order in
// memory, some of them reversed or broadcast; or any strides, not even multiples of an item.
inline Shape random_strides(const Shape& shape, std::size_t item_size, Random& random) {
  const std::size_t axes = shape.size();
  Shape strides(axes);
  if (random() % 5 == 0) {
    for (std::int64_t& stride : strides) stride = static_cast<std::int64_t>(random() % 601) - 300;
    return strides;
  }
  const bool larger = random() % 4 == 0, any_order = random() % 2 == 0, turned = random() % 4 == 0;
  std::vector<std::size_t> order(axes);
  for (std::size_t i = 0; i < axes; ++i) order[i] = i;
  if (any_order) std::shuffle(order.begin(), order.end(), random);
  auto step = static_cast<std::int64_t>(item_size);
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    const std::uint64_t kind = turned ? random() % 3 : 0;
    strides[*axis] = kind == 1 ? 0 : kind == 2 ? -step : step;
    step *= shape[*axis] + (larger ? static_cast<std::int64_t>(random() % 3) : 0);
  }
  return strides;
}

// A dtype equal to the given one, or castable to it.
inline SampleCase random_sample(ScalarType to, Shape shape, Random& random) {
  SampleCase sample{to, std::move(shape), {}};
  if (random() % 2 == 0) {
    do {
      sample.type = any_type(random);
    } while (!kernels::kCastScalar.find(sample.type, to));
  }
  sample.strides = random_strides(sample.shape, scalar_size(sample.type), random);
  for (std::size_t axis = 0; axis < sample.shape.size(); ++axis) {
    // The stride of an axis of one item is arbitrary.
    if (sample.shape[axis] == 1 && random() % 2 == 0) sample.strides[axis] = 1000003;
  }
  sample.data = reinterpret_cast<const std::byte*>(
      source_memory().place(sample.shape, sample.strides, scalar_size(sample.type), random));
  // Without an item that could be read there may be no memory.
  if (product(sample.shape) == 0 && random() % 2 == 0) sample.data = nullptr;
  return sample;
}

// The samples as kernels get them, with the necessary casts and plans, and some unnecessary plans.
// Points into the cases.
class SampleList {
 public:
  // block_axis(shape): the first axis from which the sample is one block.
  template <class BlockAxis>
  SampleList(const Isa& isa, const std::vector<SampleCase>& cases, ScalarType to,
             const BlockAxis& block_axis, Random& random) {
    plans_.reserve(cases.size());  // samples point into it
    for (const SampleCase& test : cases) {
      kernels::Sample sample{
          .data = test.data,
          .shape = test.shape.data(),
          .strides = test.strides.data(),
          .cast = test.type == to ? kernels::Cast{} : isa.casts->find(test.type, to),
          .contiguous = test.contiguous(0),
          .plan = nullptr};
      const std::size_t axis = block_axis(test.shape);
      if (axis < test.shape.size() && (!test.contiguous(axis) || random() % 2 == 0)) {
        plans_.emplace_back(test.shape.size() - axis, sample.shape + axis, sample.strides + axis,
                            scalar_size(test.type), sample.cast, scalar_size(to));
        sample.plan = &plans_.back();
      }
      samples_.push_back(sample);
    }
  }
  SampleList(const SampleList&) = delete;
  SampleList& operator=(const SampleList&) = delete;

  const kernels::Sample* data() const { return samples_.data(); }

 private:
  std::vector<kernels::StridedCopy> plans_;
  std::vector<kernels::Sample> samples_;
};

// Whether a kernel writes `expected`, whose row i is the bytes [offsets[i], offsets[i + 1]): all
// rows at once, then ranges of them in any order, each of which must leave the others unchanged.
// write(out, begin, end) writes rows [begin, end).
template <class Write>
bool writes_rows(const Bytes& expected, const std::vector<std::size_t>& offsets, Random& random,
                 const Write& write) {
  const std::size_t rows = offsets.size() - 1;
  Bytes written(expected.size(), MarkedOutput::kMark);
  const auto expect_rows = [&](std::size_t begin, std::size_t end) {
    std::copy(expected.begin() + static_cast<std::ptrdiff_t>(offsets[begin]),
              expected.begin() + static_cast<std::ptrdiff_t>(offsets[end]),
              written.begin() + static_cast<std::ptrdiff_t>(offsets[begin]));
  };
  expect_rows(0, rows);
  MarkedOutput whole(expected.size(), random() % 64);
  write(whole.data(), std::size_t{0}, rows);
  if (!whole.equals(written)) return false;

  std::vector<std::size_t> cuts{0, rows};
  for (std::size_t i = random() % 4; i > 0; --i) cuts.push_back(random() % (rows + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (std::size_t i = 1; i < cuts.size(); ++i) ranges.emplace_back(cuts[i - 1], cuts[i]);
  std::shuffle(ranges.begin(), ranges.end(), random);

  MarkedOutput parts(expected.size(), random() % 64);
  written.assign(expected.size(), MarkedOutput::kMark);
  for (const auto& [begin, end] : ranges) {
    expect_rows(begin, end);
    write(parts.data(), begin, end);
    if (!parts.equals(written)) return false;
  }
  return true;
}

}  // namespace pinfeed::tests
