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
  const auto at = [&](std::int64_t row) {
    return batch.out + static_cast<std::size_t>(row) * batch.row_items * item_size;
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
    const std::int64_t next = i + 1 < batch.count ? batch.segments[i + 1].begin : batch.tokens;
    const auto rest = static_cast<std::size_t>(next - data_end) * batch.row_items;
    if (rest > 0) batch.fill->write(at(data_end), rest, batch.streaming);
  }
  if (batch.streaming) stores_done();
}

void write_token_outputs(const Segment& segment, const TokenOutputs& outputs) {
  const std::int64_t data_end = segment.begin + segment.data;
  if (outputs.positions != nullptr) {
    std::iota(outputs.positions + segment.begin, outputs.positions + segment.end,
              outputs.position_start);
  }
  if (outputs.documents != nullptr) {
    const bool is_document = segment.data > 0;
    std::fill(outputs.documents + segment.begin, outputs.documents + segment.end,
              is_document ? segment.number : -1);
  }
  if (outputs.numbers != nullptr) {
    std::fill(outputs.numbers + segment.begin, outputs.numbers + segment.end, segment.number);
  }
  if (outputs.attention != nullptr) {
    std::fill(outputs.attention + segment.begin, outputs.attention + data_end, std::uint8_t{1});
    std::fill(outputs.attention + data_end, outputs.attention + segment.end, std::uint8_t{0});
  }
}

}  // namespace pinfeed::kernels
