// Samples of different lengths, one after the other, with gaps behind them or without: documents in
// rows of one length; and what tells a model where each of them is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/fill.h"
#include "kernels/sample.h"

namespace pinfeed::kernels {

// A stretch of the output: a document, or what is left at the end of a row.
struct Segment {
  std::int64_t begin;
  std::int64_t data;    // how many of its places have a token: the first ones
  std::int64_t end;     // where the next segment begins
  std::int32_t number;  // the first one of a row is 0; or counted through all rows
};

struct PackBatch {
  const Sample* samples;
  const Segment* segments;  // those of the samples
  std::size_t count;
  std::int64_t places;    // of the whole output
  std::size_t row_items;  // of one place, which may have more than a number
  const Fill* fill;       // its item size is the output's
  const Fill* first;      // overwrites the first token of each document; null: nothing does
  std::byte* out;
  bool streaming;  // write around the cache: the core won't read the output again
};

// Writes samples [begin, end), whole, each with the fill behind it up to the next one; the last
// one up to the end of all places. Disjoint ranges may run at the same time.
void pack_samples(const PackBatch& batch, const PermuteRuns& runs, std::size_t begin,
                  std::size_t end);

// What models take beside the tokens, one entry for each place; null for what nobody asked for.
struct PackMarks {
  std::int64_t* positions = nullptr;   // from `position_start` in each segment
  std::int32_t* documents = nullptr;   // the segment's number, -1 where it has no document
  std::int32_t* numbers = nullptr;     // the segment's number
  unsigned char* attention = nullptr;  // 1 where there is a token
  std::int64_t position_start = 0;
};

// Writes what belongs to one segment.
void mark_segment(const Segment& segment, const PackMarks& marks);

}  // namespace pinfeed::kernels
