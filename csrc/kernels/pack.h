// Samples of different lengths, concatenated with or without gaps: documents in rows of one length,
// and the ids and positions that a model needs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/fill.h"
#include "kernels/sample.h"

namespace pinfeed::kernels {

// A span of the output: a document, or the padding at the end of a row.
struct Segment {
  std::int64_t begin;
  std::int64_t data;    // its tokens, which come first
  std::int64_t end;     // the beginning of the next segment
  std::int32_t number;  // counted from 0 in each row, or through all rows
};

struct PackBatch {
  const Sample* samples;
  const Segment* segments;  // of the samples
  std::size_t count;
  std::int64_t tokens;    // in the whole output
  std::size_t row_items;  // items per token
  const Fill* fill;       // of the output's item size
  const Fill* first;      // replaces the first token of each document; null: keep it
  std::byte* out;
  bool streaming;  // bypass the cache: the core won't read the output again
};

// Writes samples [begin, end) and the fill between each and the next; the fill behind the last
// sample extends to the end of the output. Disjoint ranges may run at the same time.
void pack_samples(const PackBatch& batch, const PermuteRuns& runs, std::size_t begin,
                  std::size_t end);

// A model's further inputs, one item per token; null for outputs that are not requested.
struct TokenOutputs {
  std::int64_t* positions = nullptr;   // from `position_start` in each segment
  std::int32_t* documents = nullptr;   // the segment's number, -1 in padding
  std::int32_t* numbers = nullptr;     // the segment's number
  unsigned char* attention = nullptr;  // 1 for tokens, 0 for padding
  std::int64_t position_start = 0;
};

// Writes the outputs of one segment.
void write_token_outputs(const Segment& segment, const TokenOutputs& outputs);

}  // namespace pinfeed::kernels
