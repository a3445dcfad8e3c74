// The memory layout of arrays: checks of shapes, strides and bytes for both bindings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pinfeed::arrays {

using Shape = std::vector<std::int64_t>;
using Sizes = std::span<const std::int64_t>;

// The shape as Python writes it: "(8, 3)".
std::string shape_text(Sizes shape);

// Returns the bytes of an array. Throws std::invalid_argument, in the name of `function`, if they
// overflow 63 bits. Counts sizes of 0 as 1, because the strides of empty arrays are products of
// sizes too.
std::size_t checked_bytes(Sizes shape, std::size_t item_size, const std::string& function);

// The strides of a C-contiguous array whose shape passed checked_bytes. `unit`: bytes of an item.
Shape contiguous_strides(Sizes shape, std::int64_t unit);

// The strides of shape (N, C, H, W) stored as (N, H, W, C).
Shape channels_last_strides(Sizes shape, std::int64_t unit);

// Whether two lists of strides describe the same layout. Strides of axes of size 1 don't matter,
// and no strides matter in an empty array.
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
