// The kernels that pad a jagged batch and undo that, and their arguments.
#pragma once

#include <cstdint>

#include "cuda/row_copies.h"

namespace pinfeed::cuda {

// Values, mask and lengths of a padded batch: each block writes of one of them.
struct PadWork {
  static constexpr int kThreads = 256;

  RowCopies<PaddedRows> copies;
  std::uint8_t* mask;
  std::int64_t* lengths;
  std::int64_t places;  // of the mask; 0 without one
  std::int64_t value_blocks;
  std::int64_t mask_blocks;

  std::int64_t blocks() const {
    const std::int64_t samples = lengths == nullptr ? 0 : copies.rows.rows.count;
    return value_blocks + mask_blocks + blocks_of(samples, kThreads);
  }

  PINFEED_BOTH int mask_skip() const { return static_cast<int>(misalignment(mask, kVectorBytes)); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    if (block < value_blocks) return copies.write(block, thread, kThreads);
    block -= value_blocks;
    if (block < mask_blocks) {
      return write_mask((block * kThreads + thread) * kVectorBytes - mask_skip());
    }
    const std::int64_t sample = (block - mask_blocks) * kThreads + thread;
    const JaggedRows& rows = copies.rows.rows;
    if (sample < rows.count) lengths[sample] = rows.sample(sample).kept;
  }

 private:
  // A vector of the mask, from a multiple of 16 bytes on; what is beyond either end is left out.
  PINFEED_BOTH void write_mask(std::int64_t first) const {
    if (first >= places) return;
    const JaggedRows& rows = copies.rows.rows;
    const Division at = copies.rows.by_length.divide(larger(first, 0));
    std::int64_t sample = at.quotient, step = at.remainder;
    SampleRows own = rows.sample(sample);
    const bool is_whole = first >= 0 && first + kVectorBytes <= places;
    std::uint32_t words[4] = {};
    PINFEED_UNROLL
    for (int word = 0; word < 4; ++word) {
      PINFEED_NO_UNROLL
      for (int byte = 0; byte < 4; ++byte) {
        const std::int64_t place = first + 4 * word + byte;
        if (place < 0 || place >= places) continue;
        const bool is_data = step >= own.place && step < own.place + own.kept;
        words[word] |= (is_data ? 1u : 0u) << (8 * byte);
        if (!is_whole) mask[place] = is_data ? 1 : 0;
        if (++step < rows.length) continue;
        step = 0;
        if (++sample < rows.count) own = rows.sample(sample);
      }
    }
    if (is_whole) store_words<4>(mask + first, {{words[0], words[1], words[2], words[3]}});
  }
};

// The values of a jagged batch.
struct UnpadWork {
  static constexpr int kThreads = 256;

  RowCopies<UnpaddedRows> copies;

  std::int64_t blocks() const { return copies.blocks(kThreads); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    copies.write(block, thread, kThreads);
  }
};

// The largest power of two up to 16 that divides a row and both addresses.
inline std::int32_t common_unit(std::int64_t row_bytes, const void* from, const void* to) {
  std::int32_t unit = kVectorBytes;
  const auto divides = [&](std::int32_t size) {
    return row_bytes % size == 0 && misalignment(from, static_cast<unsigned>(size)) == 0 &&
           misalignment(to, static_cast<unsigned>(size)) == 0;
  };
  while (!divides(unit)) unit /= 2;
  return unit;
}

inline PadWork work_of(const kernels::PadJagged& pad) {
  const JaggedShape& shape = pad.shape;
  const std::int64_t places = shape.count * shape.length;
  PadWork work{
      .copies = {.rows = {JaggedRows(shape), static_cast<const std::uint8_t*>(pad.values),
                          shape.row_bytes, Divider(shape.row_bytes), Divider(shape.length)},
                 .out = static_cast<std::uint8_t*>(pad.out),
                 .bytes = places * shape.row_bytes,
                 .unit = common_unit(shape.row_bytes, pad.values, pad.out),
                 .fill = FillPattern(shape.fill)},
      .mask = pad.mask,
      .lengths = pad.lengths,
      .places = pad.mask == nullptr ? 0 : places,
      .value_blocks = 0,
      .mask_blocks = 0};
  work.value_blocks = work.copies.blocks(work.kThreads);
  const std::int64_t mask_bytes = work.places == 0 ? 0 : work.places + work.mask_skip();
  work.mask_blocks = blocks_of(mask_bytes, work.kThreads * kVectorBytes);
  return work;
}

inline UnpadWork work_of(const kernels::UnpadToJagged& unpad) {
  const JaggedShape& shape = unpad.shape;
  return {.copies = {.rows = {JaggedRows(shape), static_cast<const std::uint8_t*>(unpad.padded),
                              shape.row_bytes, Divider(shape.row_bytes)},
                     .out = static_cast<std::uint8_t*>(unpad.out),
                     .bytes = shape.total * shape.row_bytes,
                     .unit = common_unit(shape.row_bytes, unpad.padded, unpad.out),
                     .fill = FillPattern(shape.fill)}};
}

}  // namespace pinfeed::cuda
