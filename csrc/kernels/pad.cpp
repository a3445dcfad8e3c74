#include "kernels/pad.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/copy.h"
#include "kernels/lookahead.h"

namespace pinfeed::kernels {
namespace {

// Where a sample is read, about.
std::span<const std::byte> memory_of(const PadBatch& batch, const Sample& sample) {
  if (sample.data == nullptr) return {};
  const auto items = static_cast<std::size_t>(sample.shape[0] * batch.inner[0]);
  return {sample.data, items * batch.fill->item_size()};
}

// Of a sample without items there may not even be memory.
bool has_items(const PadBatch& batch, const Sample& sample) {
  const auto* const end = sample.shape + batch.axes;
  return std::find(sample.shape, end, 0) == end;
}

// One sample's way into its box, axis after axis.
class Box {
 public:
  Box(const PadBatch& batch, const PermuteRuns& runs, const Sample& sample, std::size_t first_axis)
      : batch_(batch),
        runs_(runs),
        sample_(sample),
        block_axis_(block_axis(sample.shape, batch.box, batch.axes, first_axis)) {}

  // Writes the box from `axis` on.
  void write(std::size_t axis, const std::byte* from, std::byte* to) const {
    const std::int64_t data = sample_.shape[axis] * batch_.inner[axis];
    const std::int64_t padding = batch_.box[axis] * batch_.inner[axis] - data;
    if (batch_.left) to = fill(to, padding);
    if (axis == block_axis_) {
      write_block(sample_, runs_, from, static_cast<std::size_t>(data), batch_.fill->item_size(),
                  to, batch_.streaming);
      to += bytes(data);
    } else {
      for (std::int64_t i = 0; i < sample_.shape[axis]; ++i) {
        write(axis + 1, from, to);
        from += sample_.strides[axis];
        to += bytes(batch_.inner[axis]);
      }
    }
    if (!batch_.left) fill(to, padding);
  }

 private:
  std::byte* fill(std::byte* to, std::int64_t items) const {
    batch_.fill->write(to, static_cast<std::size_t>(items), batch_.streaming);
    return to + bytes(items);
  }
  std::ptrdiff_t bytes(std::int64_t items) const {
    return items * static_cast<std::ptrdiff_t>(batch_.fill->item_size());
  }

  const PadBatch& batch_;
  const PermuteRuns& runs_;
  const Sample& sample_;
  std::size_t block_axis_;
};

void write_boxes(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin,
                 std::size_t end) {
  const std::size_t box_bytes = batch.row_bytes();
  Lookahead ahead(begin, end, box_bytes / 2);  // where lengths are anything
  for (std::size_t i = begin; i < end; ++i) {
    ahead.before(i, [&](std::size_t j) { return memory_of(batch, batch.samples[j]); });
    const Sample& sample = batch.samples[i];
    std::byte* const to = batch.out + i * box_bytes;
    if (has_items(batch, sample)) {
      Box(batch, runs, sample, 0).write(0, sample.data, to);
    } else {
      batch.fill->write(to, box_bytes / batch.fill->item_size(), batch.streaming);
    }
  }
}

// Steps that are worth going through for all samples before going on: what they write stays in the
// L1 cache until its lines are full.
constexpr std::size_t kSteps = 16;

// The part of a sample's data in the steps [first, last), as steps.
struct Window {
  std::size_t begin;
  std::size_t end;
  std::int64_t position;  // of its first item in the sample

  Window(const PadBatch& batch, const Sample& sample, std::size_t first, std::size_t last) {
    const std::int64_t before = batch.left ? batch.box[0] - sample.shape[0] : 0;
    const std::int64_t steps = has_items(batch, sample) ? sample.shape[0] : 0;
    begin = std::clamp(static_cast<std::size_t>(before), first, last);
    end = std::clamp(static_cast<std::size_t>(before + steps), begin, last);
    position = begin < end ? static_cast<std::int64_t>(begin) - before : 0;
  }
};

// `items` items of a sample of one axis, from `position` on.
void write_row(const PadBatch& batch, const PermuteRuns& runs, const Sample& sample,
               std::int64_t position, std::size_t items, std::byte* to) {
  const std::size_t item_size = batch.fill->item_size();
  const std::byte* from = sample.data + position * sample.strides[0];
  if (sample.contiguous) return write_block(sample, runs, from, items, item_size, to, false);
  for (std::size_t i = 0; i < items; ++i, from += sample.strides[0], to += item_size) {
    write_block(sample, runs, from, 1, item_size, to, false);
  }
}

// Samples of one axis: each is put together as a row and then spread out over the steps.
template <std::size_t ItemSize>
void write_columns(const PadBatch& batch, const PermuteRuns& runs, std::size_t first,
                   std::size_t last) {
  std::byte row[kSteps * ItemSize];
  for (std::size_t i = 0; i < batch.count; ++i) {
    const Sample& sample = batch.samples[i];
    const Window window(batch, sample, first, last);
    batch.fill->write(row, window.begin - first, false);
    write_row(batch, runs, sample, window.position, window.end - window.begin,
              row + (window.begin - first) * ItemSize);
    batch.fill->write(row + (window.end - first) * ItemSize, last - window.end, false);
    std::byte* to = batch.out + (first * batch.count + i) * ItemSize;
    for (std::size_t step = 0; step < last - first; ++step, to += batch.count * ItemSize) {
      std::memcpy(to, row + step * ItemSize, ItemSize);
    }
  }
}

// Samples of any axes: steps of data and steps of padding.
void write_slices(const PadBatch& batch, const PermuteRuns& runs, std::size_t first,
                  std::size_t last) {
  const auto items = static_cast<std::size_t>(batch.inner[0]);
  const std::size_t stride = batch.count * items * batch.fill->item_size();
  for (std::size_t i = 0; i < batch.count; ++i) {
    const Sample& sample = batch.samples[i];
    const Window window(batch, sample, first, last);
    const Box box(batch, runs, sample, 1);
    const std::byte* from = sample.data + window.position * sample.strides[0];
    std::byte* to = batch.out + first * stride + i * items * batch.fill->item_size();
    for (std::size_t step = first; step < last; ++step, to += stride) {
      if (step < window.begin || step >= window.end) {
        batch.fill->write(to, items, batch.streaming);
      } else {
        box.write(1, from, to);
        from += sample.strides[0];
      }
    }
  }
}

void write_steps(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin,
                 std::size_t end) {
  for (std::size_t first = begin; first < end; first += kSteps) {
    const std::size_t last = std::min(end, first + kSteps);
    if (batch.axes > 1) {
      write_slices(batch, runs, first, last);
      continue;
    }
    visit_item_size(batch.fill->item_size(),
                    [&](auto size) { write_columns<size>(batch, runs, first, last); });
  }
}

}  // namespace

std::size_t block_axis(const std::int64_t* shape, const std::int64_t* box, std::size_t axes,
                       std::size_t first) {
  std::size_t axis = axes;
  while (axis > first && (axis == axes || shape[axis] == box[axis])) --axis;
  return axis;
}

void pad_samples(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin,
                 std::size_t end) {
  (batch.time_major ? write_steps : write_boxes)(batch, runs, begin, end);
  if (batch.streaming) stores_done();
}

}  // namespace pinfeed::kernels
