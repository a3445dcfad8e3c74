// Numbers of one type, as numbers of another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/strided_copy.h"

namespace pinfeed::kernels {

enum class ScalarType {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  complex128,
};
inline constexpr std::size_t kScalarTypes = 15;

std::size_t scalar_size(ScalarType type);

// Converts `count` items. Neither side needs to be aligned; they must not overlap. Returns whether
// all integers fit: false if one became another number in an integer type that can't hold it.
using Cast = bool (*)(const void* in, std::size_t count, void* out);

// All casts of one instruction set; the results are the same on each.
struct CastTable {
  Cast casts[kScalarTypes][kScalarTypes];

  // The cast that gives what torch's Tensor.to gives, or nullptr where torch.can_cast says no: from
  // numbers to bool, from complex to real, from floating to integer types. Any byte but 0 is true.
  // Integers that don't fit wrap. Whatever becomes a 16-bit float is rounded to float32 first. A
  // NaN stays one, whatever its payload.
  Cast find(ScalarType from, ScalarType to) const {
    return casts[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }
};

extern const CastTable kCastScalar;
extern const CastTable kCastAvx2;

// A cast that goes through arrays with any strides. Planned once, it fits every array of the same
// shape and strides, on any thread, and allocates nothing.
class StridedCast {
 public:
  // There must be a cast between the types. strides: bytes.
  StridedCast(const CastTable& casts, ScalarType from, ScalarType to, std::size_t axes,
              const std::int64_t* shape, const std::int64_t* strides);

  // Writes the array at `source` to contiguous memory. `streaming` as for copy_bytes. Returns what
  // a Cast does.
  bool run(const PermuteRuns& runs, const void* source, void* out, bool streaming) const;

 private:
  bool cast_run(const std::byte* from, std::size_t count, std::byte* to, bool streaming) const;
  bool cast_row(const PermuteRuns& runs, const std::byte* from, std::byte* to,
                bool streaming) const;

  Cast cast_;
  std::size_t from_size_;
  std::size_t to_size_;
  StridedRows rows_;
};

}  // namespace pinfeed::kernels
