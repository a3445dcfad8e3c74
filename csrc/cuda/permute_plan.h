// Which kernel permutes, and with which arguments.
#pragma once

#include <cstdint>

#include "cuda/image_batch.h"
#include "cuda/image_plan.h"
#include "cuda/permutation.h"
#include "cuda/transpose.h"

namespace pinfeed::cuda {

inline std::int64_t items_of(const Permutation& p) {
  return p.count * p.height * p.width * p.channels;
}

inline bool is_valid(const Permutation& p) {
  if (p.count < 0 || p.height < 0 || p.width < 0 || p.channels < 0) return false;
  const std::int64_t size = p.item_size;
  if (size != 1 && size != 2 && size != 4 && size != 8 && size != 16) return false;
  if (items_of(p) == 0) return true;
  if (p.images == nullptr || p.out == nullptr) return false;
  const std::int64_t alignment = smaller(size, 8);
  const auto aligned = [&](std::int64_t stride, std::int64_t steps) {
    return steps == 1 || is_multiple(stride, alignment);
  };
  return misalignment(p.images, static_cast<unsigned>(alignment)) == 0 &&
         misalignment(p.out, static_cast<unsigned>(alignment)) == 0 &&
         aligned(p.image_stride, p.count) && aligned(p.row_stride, p.height) &&
         aligned(p.column_stride, p.width) && aligned(p.channel_stride, p.channels);
}

// The same as a batch of bytes that stay in order, if the rows of the output are adjacent bytes of
// the source; item_size 1 in any order.
inline bool as_bytes(const Permutation& p, ImageBatch& bytes) {
  const bool pixels = (p.channels == 1 || p.channel_stride == p.item_size) &&
                      (p.width == 1 || p.column_stride == p.channels * p.item_size);
  const bool planes = p.width == 1 || p.column_stride == p.item_size;
  bytes.images = static_cast<const std::uint8_t*>(p.images);
  bytes.source_count = bytes.count = p.count;
  bytes.image_stride = p.image_stride;
  bytes.height = p.height;
  bytes.row_stride = p.row_stride;
  bytes.out = p.out;
  bytes.layout = p.layout;
  bytes.type = PixelType::uint8;
  if (p.item_size == 1) {
    bytes.width = p.width;
    bytes.column_stride = p.column_stride;
    bytes.channels = p.channels;
    bytes.channel_stride = p.channel_stride;
  } else if (pixels && (p.layout == ImageLayout::hwc || p.channels == 1)) {
    bytes.width = p.width * p.channels * p.item_size;
    bytes.column_stride = 1;
    bytes.channels = 1;
  } else if (planes && p.layout == ImageLayout::chw) {
    bytes.width = p.width * p.item_size;
    bytes.column_stride = 1;
    bytes.channels = p.channels;
    bytes.channel_stride = p.channel_stride;
  } else {
    return false;
  }
  bytes.source_height = bytes.height;
  bytes.source_width = bytes.width;
  return true;
}

// Calls visit(work) with the work for a permutation of items of this size, at least 2 bytes, that
// is valid, has items, and is not as_bytes.
template <int kBytes, class Visit>
void visit_permute_work(const Permutation& p, Visit&& visit) {
  const std::int64_t pixels = p.height * p.width;
  const bool to_planes = p.layout == ImageLayout::chw;
  const std::int64_t column = to_planes ? p.channels * kBytes : kBytes;
  const std::int64_t channel = to_planes ? kBytes : pixels * kBytes;
  const bool adjacent = (p.channels == 1 || p.channel_stride == channel) &&
                        (p.width == 1 || p.column_stride == column) &&
                        (p.height == 1 || p.row_stride == p.width * column);
  if (adjacent) {
    Transpose<kBytes> work{};
    work.source = static_cast<const std::uint8_t*>(p.images);
    work.matrix_stride = p.image_stride;
    work.rows = to_planes ? pixels : p.channels;
    work.columns = to_planes ? p.channels : pixels;
    work.out = bytes_of(p.out);
    work.set_shape(p.count);
    visit(work);
    return;
  }
  StridedItems<kBytes> work{};
  work.source = static_cast<const std::uint8_t*>(p.images);
  work.strides[0] = p.image_stride;
  if (to_planes) {
    work.strides[1] = p.channel_stride, work.sizes[0] = Divider(p.channels);
    work.strides[2] = p.row_stride, work.sizes[1] = Divider(p.height);
    work.strides[3] = p.column_stride, work.sizes[2] = Divider(p.width);
  } else {
    work.strides[1] = p.row_stride, work.sizes[0] = Divider(p.height);
    work.strides[2] = p.column_stride, work.sizes[1] = Divider(p.width);
    work.strides[3] = p.channel_stride, work.sizes[2] = Divider(p.channels);
  }
  work.out = bytes_of(p.out);
  work.items = items_of(p);
  visit(work);
}

}  // namespace pinfeed::cuda
