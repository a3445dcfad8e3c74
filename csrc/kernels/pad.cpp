#include "kernels/pad.h"

#include <algorithm>
#include <span>

#include "kernels/copy.h"
#include "kernels/lookahead.h"

namespace pinfeed::kernels {
namespace {

// The approximate bytes from which a sample is read.
std::span<const std::byte> memory_of(const PadBatch& batch, const Sample& sample) {
  if (sample.data == nullptr) return {};
  const auto items = static_cast<std::size_t>(sample.shape[0] * batch.inner[0]);
  return {sample.data, items * batch.fill->item_size()};
}

// A sample without items may have no memory, so it is not read.
bool has_items(const PadBatch& batch, const Sample& sample) {
  const auto* const end = sample.shape + batch.axes;
  return std::find(sample.shape, end, 0) == end;
}

// Writes one sample into its box, axis by axis.
class Box {
 public:
  Box(const PadBatch& batch, const PermuteRuns& runs, const Sample& sample)
      : batch_(batch),
        runs_(runs),
        sample_(sample),
        block_axis_(block_axis(sample.shape, batch.box, batch.axes)) {}

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

}  // namespace

std::size_t block_axis(const std::int64_t* shape, const std::int64_t* box, std::size_t axes) {
  std::size_t axis = axes - 1;
  while (axis > 0 && shape[axis] == box[axis]) --axis;
  return axis;
}

namespace {

void pad_range(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin, std::size_t end) {
  const std::size_t box_bytes = batch.box_bytes();
  Lookahead ahead(begin, end, box_bytes / 2);  // the samples' mean size, if lengths are uniform
  for (std::size_t i = begin; i < end; ++i) {
    ahead.before(i, [&](std::size_t j) { return memory_of(batch, batch.samples[j]); });
    const Sample& sample = batch.samples[i];
    std::byte* const to = batch.out + i * box_bytes;
    if (has_items(batch, sample)) {
      Box(batch, runs, sample).write(0, sample.data, to);
    } else {
      batch.fill->write(to, box_bytes / batch.fill->item_size(), batch.streaming);
    }
  }
  if (batch.streaming) stores_done();
}

}  // namespace

void pad_samples(const PadBatch& batch, const PermuteRuns& runs, std::size_t begin,
                 std::size_t end) {
  const Replacement* const replaced = batch.replaced;
  if (replaced == nullptr) return pad_range(batch, runs, begin, end);
  constexpr std::size_t kCached = 8192;  // bytes read again from the first-level cache
  const std::size_t box_bytes = batch.box_bytes();
  const std::size_t step = std::max<std::size_t>(1, kCached / box_bytes);
  for (std::size_t i = begin; i < end; i += step) {
    const std::size_t next = std::min(i + step, end);
    pad_range(batch, runs, i, next);
    runs.replace(batch.out + i * box_bytes, (next - i) * box_bytes / sizeof(std::int64_t),
                 replaced->value, replaced->by, replaced->out + i * box_bytes);
  }
}

}  // namespace pinfeed::kernels
