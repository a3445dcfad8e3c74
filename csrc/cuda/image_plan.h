// Which kernel writes a batch of images, and with which arguments.
#pragma once

#include <cstdint>

#include "cuda/any_images.h"
#include "cuda/image_batch.h"
#include "cuda/pixels_to_planes.h"
#include "cuda/planes_to_pixels.h"
#include "cuda/same_order.h"

namespace pinfeed::cuda {

inline bool is_valid(const ImageBatch& batch) {
  for (const std::int64_t size : {batch.source_count, batch.source_height, batch.source_width,
                                  batch.count, batch.height, batch.width, batch.channels}) {
    if (size < 0) return false;
  }
  if (batch.count * batch.height * batch.width * batch.channels == 0) return true;
  if (batch.out == nullptr) return false;
  const bool reads = batch.source_count > 0 && batch.source_height > 0 && batch.source_width > 0;
  if (reads && batch.images == nullptr) return false;
  if (batch.indices == nullptr && batch.count > batch.source_count) return false;
  if (batch.type == PixelType::uint8) return true;
  const ChannelConstants& constants = batch.constants;
  if (constants.scale == nullptr || constants.bias == nullptr) return false;
  return constants.on_device || batch.channels <= kInlineChannels;
}

// How the fast kernels see the source of a batch: which of its bytes are adjacent.
struct SourceOrder {
  bool pixels;  // a row's: pixel by pixel
  bool planes;  // a row's of one channel
  bool rows;    // each row ends where the next begins
  bool images;  // each image ends where the next begins, and none is gathered
};

inline SourceOrder order_of(const ImageBatch& batch) {
  const std::int64_t c = batch.channels, w = batch.width, h = batch.height;
  SourceOrder order{};
  order.pixels = (c == 1 || batch.channel_stride == 1) && (w == 1 || batch.column_stride == c);
  order.planes = w == 1 || batch.column_stride == 1;
  const std::int64_t row_bytes = order.pixels ? w * c : w;
  order.rows = h == 1 || batch.row_stride == row_bytes;
  order.images = order.pixels && order.rows && batch.indices == nullptr &&
                 (batch.count == 1 || batch.image_stride == row_bytes * h);
  return order;
}

// Whether all images fill their places, so that there is nothing but data.
inline bool has_padding(const ImageBatch& batch) {
  return batch.sizes != nullptr || batch.source_height < batch.height ||
         batch.source_width < batch.width;
}

inline bool is_multiple(std::int64_t value, std::int64_t of) { return value % of == 0; }

// What the fast kernels agree on. `run_items`: adjacent items of the source; `runs_divide`: whether
// each is a whole number of groups of `group_items`.
struct FastPlan {
  std::int64_t rows;  // runs of a plane: 1, or each row by itself
  std::int64_t run_items;
  bool fits;
};

inline FastPlan plan_runs(const ImageBatch& batch, bool rows_adjacent, std::int64_t row_items,
                          std::int64_t group_items, std::int64_t alignment) {
  FastPlan plan{};
  plan.rows = rows_adjacent ? 1 : batch.height;
  plan.run_items = rows_adjacent ? row_items * batch.height : row_items;
  plan.fits =
      is_multiple(plan.run_items, group_items) &&
      plan.run_items / group_items <= std::int64_t{UINT32_MAX} &&
      misalignment(batch.images, static_cast<unsigned>(alignment)) == 0 &&
      (batch.count == 1 && batch.indices == nullptr ? true
                                                    : is_multiple(batch.image_stride, alignment)) &&
      (plan.rows == 1 || is_multiple(batch.row_stride, alignment));
  return plan;
}

inline std::uint8_t* bytes_of(void* pointer) { return static_cast<std::uint8_t*>(pointer); }

// Calls visit(work) if pixels of kChannels channels become planes and the kernel for that can do
// it.
template <PixelType kType, int kChannels, class Visit>
bool visit_pixels_to_planes(const ImageBatch& batch, const SourceOrder& order, Visit&& visit) {
  using Work = PixelsToPlanes<kType, kChannels>;
  if (batch.channels != kChannels || batch.layout != ImageLayout::chw || !order.pixels)
    return false;
  const FastPlan plan = plan_runs(batch, order.rows, batch.width, Work::kItems, Work::kAlignment);
  if (!plan.fits) return false;
  const std::int64_t pixels = batch.height * batch.width;
  const ChannelTable table(batch.constants, kChannels);
  Work work{};
  work.source = SourceImages(batch);
  work.runs = {Divider(plan.run_items / Work::kItems), Divider(plan.rows), Divider(1)};
  work.row_stride = plan.rows == 1 ? 0 : batch.row_stride;
  work.plane_bytes = pixels * kItemBytes<kType>;
  work.out = bytes_of(batch.out);
  work.groups = batch.count * pixels / Work::kItems;
  work.fill = batch.fill;
  for (int c = 0; c < kChannels; ++c) work.affine[c] = table.at(c);
  visit(work);
  return true;
}

template <PixelType kType, int kChannels, class Visit>
bool visit_planes_to_pixels(const ImageBatch& batch, const SourceOrder& order, Visit&& visit) {
  using Work = PlanesToPixels<kType, kChannels>;
  if (batch.channels != kChannels || batch.layout != ImageLayout::hwc || !order.planes)
    return false;
  const bool rows_adjacent = batch.height == 1 || batch.row_stride == batch.width;
  const FastPlan plan =
      plan_runs(batch, rows_adjacent, batch.width, Work::kItems, Work::kAlignment);
  if (!plan.fits || !is_multiple(batch.channel_stride, Work::kAlignment)) return false;
  const ChannelTable table(batch.constants, kChannels);
  Work work{};
  work.source = SourceImages(batch);
  work.runs = {Divider(plan.run_items / Work::kItems), Divider(plan.rows), Divider(1)};
  work.row_stride = plan.rows == 1 ? 0 : batch.row_stride;
  work.plane_stride = batch.channel_stride;
  work.out = bytes_of(batch.out);
  work.groups = batch.count * batch.height * batch.width / Work::kItems;
  work.fill = batch.fill;
  for (int c = 0; c < kChannels; ++c) work.affine[c] = table.at(c);
  visit(work);
  return true;
}

// The same for planes that stay planes, kPeriod 1, or pixels that stay pixels: of kPeriod channels,
// or bytes of any number of channels, kPeriod 1.
template <PixelType kType, int kPeriod, class Visit>
bool visit_same_order(const ImageBatch& batch, const SourceOrder& order, Visit&& visit) {
  using Work = SameOrder<kType, kPeriod>;
  const bool one_channel = batch.channels == 1;
  const bool planes = batch.layout == ImageLayout::chw || one_channel;
  constexpr bool kBytes = kType == PixelType::uint8;
  const bool pixels_are_adjacent =
      (batch.layout == ImageLayout::hwc || one_channel) && order.pixels;
  const bool planes_are_adjacent = planes && order.planes;
  if (kPeriod != 1 && (batch.channels != kPeriod || !pixels_are_adjacent)) return false;
  if (kPeriod == 1 && !planes_are_adjacent && !(pixels_are_adjacent && (kBytes || one_channel))) {
    return false;
  }
  const bool as_pixels = kPeriod != 1 || pixels_are_adjacent;
  const std::int64_t items = batch.count * batch.height * batch.width * batch.channels;
  const std::int64_t row_items = as_pixels ? batch.width * batch.channels : batch.width;
  const bool rows_adjacent = batch.height == 1 || batch.row_stride == row_items;
  const std::int64_t plane_count = as_pixels ? 1 : batch.channels;
  FastPlan plan = plan_runs(batch, rows_adjacent, row_items, Work::kItems, Work::kAlignment);
  if (plane_count > 1 && !is_multiple(batch.channel_stride, Work::kAlignment)) plan.fits = false;

  Work work{};
  work.source = SourceImages(batch);
  work.items = items;
  work.groups = blocks_of(items, Work::kItems);
  // A batch without gaps is one run, and then its end may be anywhere.
  const bool one_run = as_pixels && order.images;
  if (one_run) {
    plan.fits = misalignment(batch.images, Work::kAlignment) == 0 &&
                work.groups <= std::int64_t{UINT32_MAX};
  }
  if (!plan.fits) return false;
  if (one_run) {
    work.runs = {Divider(work.groups), Divider(1), Divider(1)};
  } else {
    work.runs = {Divider(plan.run_items / Work::kItems), Divider(plan.rows), Divider(plane_count)};
  }
  work.row_stride = plan.rows == 1 ? 0 : batch.row_stride;
  work.plane_stride = plane_count == 1 ? 0 : batch.channel_stride;
  work.out = bytes_of(batch.out);
  work.fill = batch.fill;
  const ChannelTable table =
      kBytes ? ChannelTable() : ChannelTable(batch.constants, batch.channels);
  if (kPeriod == 1) {
    work.channels = table;
  } else {
    for (int c = 0; c < kPeriod; ++c) work.affine[c] = table.at(c);
  }
  visit(work);
  return true;
}

template <PixelType kType, ImageLayout kLayout, class Visit>
void visit_any_images(const ImageBatch& batch, Visit&& visit) {
  using Work = AnyImages<kType, kLayout>;
  Work work{};
  work.source = SourceImages(batch);
  work.row_stride = batch.row_stride;
  work.column_stride = batch.column_stride;
  work.channel_stride = batch.channel_stride;
  work.height = Divider(batch.height);
  work.width = Divider(batch.width);
  work.channels = Divider(batch.channels);
  work.sizes = batch.sizes;
  work.most_height = smaller(batch.height, batch.source_height);
  work.most_width = smaller(batch.width, batch.source_width);
  work.out = bytes_of(batch.out);
  work.mask = batch.mask;
  work.items = batch.count * batch.height * batch.width * batch.channels;
  work.pixels = batch.mask == nullptr ? 0 : batch.count * batch.height * batch.width;
  work.value_blocks =
      blocks_of(Work::vectors(work.items, work.skip(), Work::kItems), Work::kThreads);
  work.fill = batch.fill;
  if (kType != PixelType::uint8) work.constants = ChannelTable(batch.constants, batch.channels);
  visit(work);
}

// Calls visit(work) with the work for a batch of this type that is valid and has items, once.
template <PixelType kType, class Visit>
void visit_image_work(const ImageBatch& batch, Visit&& visit) {
  const bool fast =
      !has_padding(batch) && batch.mask == nullptr && misalignment(batch.out, kVectorBytes) == 0;
  const SourceOrder order = order_of(batch);
  if (fast && visit_same_order<kType, 1>(batch, order, visit)) return;
  if (fast && !batch.constants.on_device) {  // the others take constants by value
    if constexpr (kType != PixelType::uint8) {
      if (visit_same_order<kType, 3>(batch, order, visit)) return;
      if (visit_same_order<kType, 4>(batch, order, visit)) return;
    }
    if (visit_pixels_to_planes<kType, 3>(batch, order, visit)) return;
    if (visit_pixels_to_planes<kType, 4>(batch, order, visit)) return;
    if (visit_planes_to_pixels<kType, 3>(batch, order, visit)) return;
    if (visit_planes_to_pixels<kType, 4>(batch, order, visit)) return;
  }
  if (batch.layout == ImageLayout::chw) {
    visit_any_images<kType, ImageLayout::chw>(batch, visit);
  } else {
    visit_any_images<kType, ImageLayout::hwc>(batch, visit);
  }
}

}  // namespace pinfeed::cuda
