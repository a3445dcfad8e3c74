#include "kernels/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/copy.h"
#include "kernels/item.h"

namespace pinfeed::kernels {
namespace {

// Items on a side of the square that is transposed at a time: the lines of its source and its
// output stay in the L1 cache together.
constexpr std::size_t kSide = 32;

// Small enough for a tile to stay in the L1 cache.
constexpr std::size_t kTileBytes = 4096;

// out[i][j] = in[i * slow_stride + j * fast_stride].
template <std::size_t Item>
void transpose(const std::byte* from, std::size_t slow_size, std::ptrdiff_t slow_stride,
               std::size_t fast_size, std::ptrdiff_t fast_stride, std::byte* to) {
  for (std::size_t i0 = 0; i0 < slow_size; i0 += kSide) {
    const std::size_t i1 = std::min(slow_size, i0 + kSide);
    for (std::size_t j0 = 0; j0 < fast_size; j0 += kSide) {
      const std::size_t j1 = std::min(fast_size, j0 + kSide);
      for (std::size_t i = i0; i < i1; ++i) {
        const std::byte* item = from + static_cast<std::ptrdiff_t>(i) * slow_stride +
                                static_cast<std::ptrdiff_t>(j0) * fast_stride;
        for (std::size_t j = j0; j < j1; ++j, item += fast_stride) {
          std::memcpy(to + (i * fast_size + j) * Item, item, Item);
        }
      }
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(std::size_t axes, const std::int64_t* shape, const std::int64_t* strides,
                         std::size_t item_size, Cast cast, std::size_t out_size)
    : cast_(cast), item_size_(item_size), out_size_(out_size) {
  std::vector<Axis> merged;
  for (std::size_t i = 0; i < axes; ++i) {
    const Axis axis{static_cast<std::size_t>(shape[i]), static_cast<std::ptrdiff_t>(strides[i])};
    if (axis.size == 0) rows_ = 0;
    if (axis.size == 1) continue;
    if (!merged.empty() &&
        merged.back().stride == axis.stride * static_cast<std::ptrdiff_t>(axis.size)) {
      merged.back() = {merged.back().size * axis.size, axis.stride};
    } else {
      merged.push_back(axis);
    }
  }
  if (rows_ == 0) return;
  if (!merged.empty()) {
    fast_ = merged.back();
    merged.pop_back();
  } else {
    fast_ = {1, static_cast<std::ptrdiff_t>(item_size)};
  }
  // A contiguous fast axis is copied directly; otherwise one more axis joins the row, so that it
  // can be transposed in squares.
  if (fast_.stride != static_cast<std::ptrdiff_t>(item_size) && !merged.empty()) {
    slow_ = merged.back();
    merged.pop_back();
  }
  outer_ = std::move(merged);
  for (const Axis& axis : outer_) rows_ *= axis.size;
}

std::ptrdiff_t StridedCopy::offset(std::size_t row) const {
  std::ptrdiff_t offset = 0;
  for (auto axis = outer_.rbegin(); axis != outer_.rend(); ++axis) {
    offset += static_cast<std::ptrdiff_t>(row % axis->size) * axis->stride;
    row /= axis->size;
  }
  return offset;
}

void copy_items(const PermuteRuns& runs, const std::byte* from, Axis slow, Axis fast,
                std::size_t item_size, std::byte* to, bool streaming) {
  const auto item = static_cast<std::ptrdiff_t>(item_size);
  if (const auto interleave = runs.find_interleave(item_size, fast.size);
      interleave != nullptr && slow.stride == item) {
    return interleave(from, fast.stride, slow.size, to, streaming);
  }
  if (const auto deinterleave = runs.find_deinterleave(item_size, slow.size);
      deinterleave != nullptr && slow.stride == item &&
      fast.stride == item * static_cast<std::ptrdiff_t>(slow.size)) {
    return deinterleave(from, fast.size, to, item * static_cast<std::ptrdiff_t>(fast.size),
                        streaming);
  }
  visit_item_size(item_size, [&](auto size) {
    transpose<size>(from, slow.size, slow.stride, fast.size, fast.stride, to);
  });
}

bool StridedCopy::run(const PermuteRuns& runs, const void* source, void* out, std::size_t begin,
                      std::size_t end, bool streaming) const {
  const std::size_t bytes = row_bytes();
  const bool contiguous = fast_.stride == static_cast<std::ptrdiff_t>(item_size_);
  bool fits = true;
  for (std::size_t row = begin; row < end; ++row) {
    const std::byte* const from = static_cast<const std::byte*>(source) + offset(row);
    std::byte* const to = static_cast<std::byte*>(out) + row * bytes;
    if (!cast_ && contiguous) {
      copy_bytes(to, from, bytes, streaming);
    } else if (!cast_) {
      copy_items(runs, from, slow_, fast_, item_size_, to, streaming);
    } else {
      fits &= contiguous ? cast_run(from, row_items(), to, streaming)
                         : cast_row(runs, from, to, streaming);
    }
  }
  if (streaming) stores_done();
  return fits;
}

// Adjacent items.
bool StridedCopy::cast_run(const std::byte* from, std::size_t count, std::byte* to,
                           bool streaming) const {
  if (!streaming) return cast_(from, count, to);
  alignas(64) std::byte tile[kTileBytes];
  const std::size_t tile_items = kTileBytes / out_size_;
  bool fits = true;
  for (std::size_t begin = 0; begin < count; begin += tile_items) {
    const std::size_t items = std::min(tile_items, count - begin);
    fits &= cast_(from + begin * item_size_, items, tile);
    copy_bytes(to + begin * out_size_, tile, items * out_size_, streaming);
  }
  return fits;
}

// A strided row is copied in blocks that fill a tile: whole runs of the fast axis if they are
// short, else parts of up to kSide runs, so that lines of a transposed source are read completely
// while they are in the cache.
bool StridedCopy::cast_row(const PermuteRuns& runs, const std::byte* from, std::byte* to,
                           bool streaming) const {
  alignas(64) std::byte tile[kTileBytes];
  const Axis slow = slow_, fast = fast_;
  const std::size_t tile_items = kTileBytes / item_size_;
  const std::size_t slow_step = std::min(slow.size, std::max(kSide, tile_items / fast.size));
  const std::size_t fast_step = std::min(fast.size, tile_items / slow_step);
  bool fits = true;
  for (std::size_t i = 0; i < slow.size; i += slow_step) {
    const Axis slow_part{std::min(slow_step, slow.size - i), slow.stride};
    for (std::size_t j = 0; j < fast.size; j += fast_step) {
      const Axis fast_part{std::min(fast_step, fast.size - j), fast.stride};
      const std::byte* const first = from + static_cast<std::ptrdiff_t>(i) * slow.stride +
                                     static_cast<std::ptrdiff_t>(j) * fast.stride;
      copy_items(runs, first, slow_part, fast_part, item_size_, tile, false);
      const bool whole = fast_part.size == fast.size;
      const std::size_t parts = whole ? 1 : slow_part.size;
      const std::size_t items = whole ? slow_part.size * fast.size : fast_part.size;
      for (std::size_t part = 0; part < parts; ++part) {
        fits &= cast_run(tile + part * items * item_size_, items,
                         to + ((i + part) * fast.size + j) * out_size_, streaming);
      }
    }
  }
  return fits;
}

}  // namespace pinfeed::kernels
