// How arrays lie in memory: what both bindings check of shapes, strides and bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pinfeed::arrays {

using Shape = std::vector<std::int64_t>;
using Sizes = std::span<const std::int64_t>;

// "(8, 3)", as Python writes it.
std::string shape_text(Sizes shape);

// Bytes of an array. Throws std::invalid_argument, in the name of `function`, if they overflow 63
// bits, with 1 for sizes of 0: strides are products of some of the sizes, in empty arrays too.
std::size_t checked_bytes(Sizes shape, std::size_t item_size, const std::string& function);

// The strides of an array in order, whose shape checked_bytes has let pass. `unit`: of an item.
Shape contiguous_strides(Sizes shape, std::int64_t unit);

// Of shape (N, C, H, W), lying in memory as (N, H, W, C).
Shape channels_last_strides(Sizes shape, std::int64_t unit);

// Whether an array lies as one with the other strides would. Strides of axes of one item mean
// nothing, and nothing lies anywhere where there are no items.
bool has_strides(Sizes shape, Sizes strides, Sizes others);

// First and one-past-last address that an array may touch; equal if it has no items.
struct Extent {
  const std::byte* begin;
  const std::byte* end;
};

// `unit`: bytes of a stride of 1.
Extent extent(const void* data, Sizes shape, Sizes strides, std::int64_t unit,
              std::size_t item_size);

bool overlap(const Extent& a, const Extent& b);

}  // namespace pinfeed::arrays
