// Chooses the kernel for a batch of images, and its arguments.
#pragma once

#include <cstdint>

#include "cuda/any_images.h"
#include "cuda/pixels_to_planes.h"
#include "cuda/same_order.h"

namespace pinfeed::cuda {

// Whether the bytes of a row are adjacent: of all its pixels, or of one channel.
inline bool has_adjacent_pixels(const ImageTensor& batch) {
  return (batch.channels == 1 || batch.channel_stride == 1) &&
         (batch.width == 1 || batch.column_stride == batch.channels);
}
inline bool has_adjacent_columns(const ImageTensor& batch) {
  return batch.width == 1 || batch.column_stride == 1;
}

// Cuts a batch into runs for a fast kernel: `planes` per image, whose rows are `row_items` items of
// the output and `row_bytes` adjacent bytes of the source. Returns false if runs are not whole
// groups, or if the source is not aligned.
template <class Work>
bool set_runs(Work& work, const ImageTensor& batch, std::int64_t planes, std::int64_t row_items,
              std::int64_t row_bytes) {
  const bool rows_adjacent = batch.height == 1 || batch.row_stride == row_bytes;
  const std::int64_t rows = rows_adjacent ? 1 : batch.height;
  const std::int64_t run_items = rows_adjacent ? row_items * batch.height : row_items;
  work.images = batch.images;
  work.image_stride = batch.image_stride;
  work.runs = {Divider(run_items / Work::kItems), Divider(rows), Divider(planes)};
  work.row_stride = rows == 1 ? 0 : batch.row_stride;
  work.out = static_cast<std::uint8_t*>(batch.out);
  work.groups = batch.count * planes * batch.height * row_items / Work::kItems;
  const auto is_aligned = [](std::int64_t stride, std::int64_t steps) {
    return steps == 1 || stride % Work::kAlignment == 0;
  };
  return run_items % Work::kItems == 0 && run_items / Work::kItems <= std::int64_t{UINT32_MAX} &&
         misalignment(batch.images, Work::kAlignment) == 0 &&
         is_aligned(batch.image_stride, batch.count) && is_aligned(batch.row_stride, rows) &&
         is_aligned(batch.channel_stride, planes);
}

// Calls visit(work) if kChannels channels are split into planes and the fast kernel supports the
// layout.
template <PixelType kType, int kChannels, class Visit>
bool visit_pixels_to_planes(const ImageTensor& batch, Visit&& visit) {
  if (batch.channels != kChannels || batch.layout != ImageLayout::chw) return false;
  PixelsToPlanes<kType, kChannels> work{};
  if (!has_adjacent_pixels(batch) ||
      !set_runs(work, batch, 1, batch.width, batch.width * kChannels)) {
    return false;
  }
  work.plane_bytes = batch.height * batch.width * kItemBytes<kType>;
  const ChannelTable table(batch);
  for (int c = 0; c < kChannels; ++c) work.affine[c] = table.at(c);
  visit(work);
  return true;
}

// The same for layouts that don't change: planes (kPeriod 1), pixels of kPeriod channels, or bytes
// of any number of channels (kPeriod 1).
template <PixelType kType, int kPeriod, class Visit>
bool visit_same_order(const ImageTensor& batch, Visit&& visit) {
  using Work = SameOrder<kType, kPeriod>;
  const bool one_channel = batch.channels == 1;
  const bool pixels =
      (batch.layout == ImageLayout::hwc || one_channel) && has_adjacent_pixels(batch);
  const bool planes =
      (batch.layout == ImageLayout::chw || one_channel) && has_adjacent_columns(batch);
  if (kPeriod != 1 && (batch.channels != kPeriod || !pixels)) return false;
  constexpr bool kAnyChannels = kType == PixelType::uint8;
  if (kPeriod == 1 && !planes && !(pixels && (kAnyChannels || one_channel))) return false;

  Work work{};
  const std::int64_t row_items = pixels ? batch.width * batch.channels : batch.width;
  bool fits = set_runs(work, batch, pixels ? 1 : batch.channels, row_items, row_items);
  const std::int64_t image_items = batch.channels * batch.height * batch.width;
  const bool no_gaps = pixels && (batch.count == 1 || batch.image_stride == image_items) &&
                       (batch.height == 1 || batch.row_stride == row_items);
  if (no_gaps) {  // then the batch is one run
    work.runs = {Divider(work.groups), Divider(1), Divider(1)};
    fits = misalignment(batch.images, Work::kAlignment) == 0 &&
           batch.count * image_items % Work::kItems == 0 && work.groups <= std::int64_t{UINT32_MAX};
  }
  if (!fits) return false;
  work.plane_stride = pixels ? 0 : batch.channel_stride;
  const ChannelTable table(batch);
  if constexpr (kPeriod == 1) {
    work.channels = table;
  } else {
    for (int c = 0; c < kPeriod; ++c) work.affine[c] = table.at(c);
  }
  visit(work);
  return true;
}

template <PixelType kType, ImageLayout kLayout, class Visit>
void visit_any_images(const ImageTensor& batch, Visit&& visit) {
  AnyImages<kType, kLayout> work{};
  work.images = batch.images;
  work.image_stride = batch.image_stride;
  work.row_stride = batch.row_stride;
  work.column_stride = batch.column_stride;
  work.channel_stride = batch.channel_stride;
  work.height = Divider(batch.height);
  work.width = Divider(batch.width);
  work.channels = Divider(batch.channels);
  work.out = static_cast<std::uint8_t*>(batch.out);
  work.items = batch.count * batch.height * batch.width * batch.channels;
  work.constants = ChannelTable(batch);
  visit(work);
}

// Calls visit(work) once, with the work for a batch of this type that has items.
template <PixelType kType, class Visit>
void visit_image_work(const ImageTensor& batch, Visit&& visit) {
  if (visit_same_order<kType, 1>(batch, visit)) return;
  if constexpr (kType != PixelType::uint8) {
    if (visit_same_order<kType, 3>(batch, visit)) return;
    if (visit_same_order<kType, 4>(batch, visit)) return;
  }
  if (visit_pixels_to_planes<kType, 3>(batch, visit)) return;
  if (visit_pixels_to_planes<kType, 4>(batch, visit)) return;
  if (batch.layout == ImageLayout::chw) {
    visit_any_images<kType, ImageLayout::chw>(batch, visit);
  } else {
    visit_any_images<kType, ImageLayout::hwc>(batch, visit);
  }
}

}  // namespace pinfeed::cuda
