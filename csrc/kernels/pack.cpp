#include "kernels/pack.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "kernels/copy.h"
#include "kernels/lookahead.h"

namespace pinfeed::kernels {

void pack_samples(const PackBatch& batch, const PermuteRuns& runs, std::size_t begin,
                  std::size_t end) {
  const std::size_t item_size = batch.fill->item_size();
  const auto items = [&](std::size_t i) {
    return static_cast<std::size_t>(batch.segments[i].data) * batch.row_items;
  };
  const auto memory_of = [&](std::size_t i) {
    const std::byte* const data = batch.samples[i].data;
    return std::span(data, data == nullptr ? 0 : items(i) * item_size);
  };
  const auto at = [&](std::int64_t place) {
    return batch.out + static_cast<std::size_t>(place) * batch.row_items * item_size;
  };
  if (begin == end) return;
  const std::byte* const last = at(batch.segments[end - 1].begin + batch.segments[end - 1].data);
  const auto all = static_cast<std::size_t>(last - at(batch.segments[begin].begin));
  Lookahead ahead(begin, end, all / (end - begin));
  for (std::size_t i = begin; i < end; ++i) {
    ahead.before(i, memory_of);
    const Segment& segment = batch.segments[i];
    const Sample& sample = batch.samples[i];
    write_block(sample, runs, sample.data, items(i), item_size, at(segment.begin), batch.streaming);
    if (batch.first != nullptr && segment.data > 0) {
      batch.first->write(at(segment.begin), batch.row_items, false);
    }
    const std::int64_t data_end = segment.begin + segment.data;
    const std::int64_t next = i + 1 < batch.count ? batch.segments[i + 1].begin : batch.places;
    const auto rest = static_cast<std::size_t>(next - data_end) * batch.row_items;
    if (rest > 0) batch.fill->write(at(data_end), rest, batch.streaming);
  }
  if (batch.streaming) stores_done();
}

void mark_segment(const Segment& segment, const PackMarks& marks) {
  const std::int64_t data_end = segment.begin + segment.data;
  if (marks.positions != nullptr) {
    std::iota(marks.positions + segment.begin, marks.positions + segment.end, marks.position_start);
  }
  if (marks.documents != nullptr) {
    const bool is_document = segment.data > 0;
    std::fill(marks.documents + segment.begin, marks.documents + segment.end,
              is_document ? segment.number : -1);
  }
  if (marks.numbers != nullptr) {
    std::fill(marks.numbers + segment.begin, marks.numbers + segment.end, segment.number);
  }
  if (marks.attention != nullptr) {
    std::fill(marks.attention + segment.begin, marks.attention + data_end, std::uint8_t{1});
    std::fill(marks.attention + data_end, marks.attention + segment.end, std::uint8_t{0});
  }
}

}  // namespace pinfeed::kernels
