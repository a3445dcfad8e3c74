// Which kernel pads a jagged batch or undoes that, and with which arguments.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/jagged_batch.h"
#include "cuda/jagged_rows.h"
#include "cuda/row_copies.h"

namespace pinfeed::cuda {

// Values, mask and lengths of a padded batch: each block writes of one of them.
template <int kWidth>
struct PadWork {
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  RowCopies<PaddedRows, kWidth> copies;
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
    if (block < value_blocks) {
      return copies.write(block * (kThreads * copies.kVectors) + thread, kThreads);
    }
    block -= value_blocks;
    if (block < mask_blocks) {
      return write_mask((block * kThreads + thread) * kVectorBytes - mask_skip());
    }
    const std::int64_t sample = (block - mask_blocks) * kThreads + thread;
    const JaggedRows& rows = copies.rows.rows;
    if (sample < rows.count) lengths[sample] = rows.sample(sample).kept;
  }

 private:
  PINFEED_BOTH void write_mask(std::int64_t first) const {
    if (first >= places) return;
    const JaggedRows& rows = copies.rows.rows;
    const Division at = copies.rows.by_inner.divide(larger(first, 0));
    std::int64_t sample = rows.time_major ? at.remainder : at.quotient;
    std::int64_t step = rows.time_major ? at.quotient : at.remainder;
    SampleRows own = rows.sample(sample);
    store_mask(mask, first, places, [&] {
      const bool is_data = step >= own.place && step < own.place + own.kept;
      const std::int64_t before = sample;
      if (rows.time_major) {
        if (++sample == rows.count) sample = 0, ++step;
      } else {
        if (++step == rows.length) step = 0, ++sample;
      }
      // After the last place there is no sample.
      if (sample != before && sample < rows.count) own = rows.sample(sample);
      return is_data;
    });
  }
};

// The values of a jagged batch.
template <int kWidth>
struct UnpadWork {
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  RowCopies<UnpaddedRows, kWidth> copies;

  std::int64_t blocks() const { return blocks_of(copies.vectors(), kThreads * copies.kVectors); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    copies.write(block * (kThreads * copies.kVectors) + thread, kThreads);
  }
};

inline bool is_valid(const JaggedShape& shape) {
  if (shape.count < 0 || shape.total < 0 || shape.length < 0 || shape.row_bytes < 0) return false;
  if (shape.most < 0 || shape.most > shape.length) return false;
  const std::int64_t size = shape.fill.size;
  if (size != 1 && size != 2 && size != 4 && size != 8 && size != 16) return false;
  if (shape.row_bytes % size != 0) return false;
  return misalignment(shape.offsets, 8) == 0;
}

inline bool is_valid(const PadJagged& pad) {
  if (!is_valid(pad.shape) || misalignment(pad.lengths, 8) != 0) return false;
  const std::int64_t places = pad.shape.count * pad.shape.length;
  const bool writes_values = places > 0 && pad.shape.row_bytes > 0;
  if (writes_values && pad.out == nullptr) return false;
  if (writes_values && pad.shape.total > 0 && pad.values == nullptr) return false;
  return pad.shape.offsets != nullptr || pad.shape.count == 0;
}

inline bool is_valid(const UnpadToJagged& unpad) {
  const JaggedShape& shape = unpad.shape;
  if (!is_valid(shape)) return false;
  if (shape.total * shape.row_bytes == 0) return true;
  if (unpad.out == nullptr) return false;
  if (shape.count * shape.length > 0 && unpad.padded == nullptr) return false;
  return shape.offsets != nullptr || shape.count == 0;
}

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

// Calls visit with std::integral_constant<int, width>: where time comes first, a vector would hold
// rows of several samples, so it is no wider than what a row divides into.
template <class Visit>
void with_width(const JaggedShape& shape, std::int32_t unit, Visit&& visit) {
  switch (shape.time_major ? unit : kVectorBytes) {
    case 1:
      return visit(std::integral_constant<int, 1>());
    case 2:
      return visit(std::integral_constant<int, 2>());
    case 4:
      return visit(std::integral_constant<int, 4>());
    case 8:
      return visit(std::integral_constant<int, 8>());
    default:
      return visit(std::integral_constant<int, 16>());
  }
}

// Calls visit(work) with the work for arguments that are valid.
template <class Visit>
void visit_pad_work(const PadJagged& pad, Visit&& visit) {
  const JaggedShape& shape = pad.shape;
  const std::int32_t unit = common_unit(shape.row_bytes, pad.values, pad.out);
  with_width(shape, unit, [&](auto width) {
    const PaddedRows rows{JaggedRows(shape), static_cast<const std::uint8_t*>(pad.values),
                          shape.row_bytes, Divider(shape.row_bytes),
                          Divider(shape.time_major ? shape.count : shape.length)};
    const std::int64_t places = shape.count * shape.length;
    PadWork<width> work{.copies = {.rows = rows,
                                   .out = static_cast<std::uint8_t*>(pad.out),
                                   .bytes = places * shape.row_bytes,
                                   .unit = unit,
                                   .fill = FillPattern(shape.fill)},
                        .mask = pad.mask,
                        .lengths = pad.lengths,
                        .places = pad.mask == nullptr ? 0 : places,
                        .value_blocks = 0,
                        .mask_blocks = 0};
    work.value_blocks = blocks_of(work.copies.vectors(), work.kThreads * work.copies.kVectors);
    const std::int64_t mask_bytes = work.places == 0 ? 0 : work.places + work.mask_skip();
    work.mask_blocks = blocks_of(mask_bytes, work.kThreads * kVectorBytes);
    visit(work);
  });
}

template <class Visit>
void visit_unpad_work(const UnpadToJagged& unpad, Visit&& visit) {
  const JaggedShape& shape = unpad.shape;
  const std::int32_t unit = common_unit(shape.row_bytes, unpad.padded, unpad.out);
  with_width(shape, unit, [&](auto width) {
    const UnpaddedRows rows{JaggedRows(shape), static_cast<const std::uint8_t*>(unpad.padded),
                            shape.row_bytes, Divider(shape.row_bytes)};
    visit(UnpadWork<width>{.copies = {.rows = rows,
                                      .out = static_cast<std::uint8_t*>(unpad.out),
                                      .bytes = shape.total * shape.row_bytes,
                                      .unit = unit,
                                      .fill = FillPattern(shape.fill)}});
  });
}

}  // namespace pinfeed::cuda
