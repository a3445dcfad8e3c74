#include "kernels/cast.h"

#include <algorithm>
#include <array>

#include "kernels/cast_items.h"
#include "kernels/copy.h"

namespace pinfeed::kernels {
namespace {

// Small enough that what goes through a tile stays in the L1 cache.
constexpr std::size_t kTileBytes = 4096;

struct Scalar {
  template <class From, class To>
  static bool cast(const void* in, std::size_t count, void* out, float scale) {
    return cast_items<From, To>(in, count, out, scale);
  }
};

}  // namespace

constexpr CastTable kCastScalar = make_casts<Scalar>();

std::size_t scalar_size(ScalarType type) {
  static constexpr auto sizes = []<class... Types>(std::type_identity<std::tuple<Types...>>) {
    return std::to_array({sizeof(Types)...});
  }(std::type_identity<Scalars>{});
  return sizes[static_cast<std::size_t>(type)];
}

bool takes_scale(ScalarType from, ScalarType to) {
  const bool is_integer = from >= ScalarType::uint8 && from <= ScalarType::int64;
  return is_integer && to >= ScalarType::float16 && to <= ScalarType::float32;
}

StridedCast::StridedCast(Cast cast, ScalarType from, ScalarType to, std::size_t axes,
                         const std::int64_t* shape, const std::int64_t* strides)
    : cast_(cast),
      from_size_(scalar_size(from)),
      to_size_(scalar_size(to)),
      rows_(axes, shape, strides, from_size_) {}

bool StridedCast::run(const PermuteRuns& runs, const void* source, void* out,
                      bool streaming) const {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(out);
  const bool contiguous = rows_.fast().stride == static_cast<std::ptrdiff_t>(from_size_);
  bool fits = true;
  for (std::size_t row = 0; row < rows_.count(); ++row) {
    const std::byte* const first = from + rows_.offset(row);
    fits &= contiguous ? cast_run(first, rows_.items(), to, streaming)
                       : cast_row(runs, first, to, streaming);
    to += rows_.items() * to_size_;
  }
  if (streaming) stores_done();
  return fits;
}

// Items that stand next to each other.
bool StridedCast::cast_run(const std::byte* from, std::size_t count, std::byte* to,
                           bool streaming) const {
  if (!streaming) return cast_(from, count, to);
  alignas(64) std::byte tile[kTileBytes];
  const std::size_t tile_items = kTileBytes / to_size_;
  bool fits = true;
  for (std::size_t begin = 0; begin < count; begin += tile_items) {
    const std::size_t items = std::min(tile_items, count - begin);
    fits &= cast_(from + begin * from_size_, items, tile);
    copy_bytes(to + begin * to_size_, tile, items * to_size_, streaming);
  }
  return fits;
}

// A row with strides is brought together in blocks that fill a tile: whole runs of the fast axis if
// they are short, else parts of up to kSide of them, so that lines of a transposed source are used
// up while they are in the cache.
bool StridedCast::cast_row(const PermuteRuns& runs, const std::byte* from, std::byte* to,
                           bool streaming) const {
  constexpr std::size_t kSide = 32;
  alignas(64) std::byte tile[kTileBytes];
  const Axis slow = rows_.slow(), fast = rows_.fast();
  const std::size_t tile_items = kTileBytes / from_size_;
  const std::size_t slow_step = std::min(slow.size, std::max(kSide, tile_items / fast.size));
  const std::size_t fast_step = std::min(fast.size, tile_items / slow_step);
  bool fits = true;
  for (std::size_t i = 0; i < slow.size; i += slow_step) {
    const Axis slow_part{std::min(slow_step, slow.size - i), slow.stride};
    for (std::size_t j = 0; j < fast.size; j += fast_step) {
      const Axis fast_part{std::min(fast_step, fast.size - j), fast.stride};
      const std::byte* const first = from + static_cast<std::ptrdiff_t>(i) * slow.stride +
                                     static_cast<std::ptrdiff_t>(j) * fast.stride;
      copy_items(runs, first, slow_part, fast_part, from_size_, tile, false);
      const bool whole = fast_part.size == fast.size;
      const std::size_t parts = whole ? 1 : slow_part.size;
      const std::size_t items = whole ? slow_part.size * fast.size : fast_part.size;
      for (std::size_t part = 0; part < parts; ++part) {
        fits &= cast_run(tile + part * items * from_size_, items,
                         to + ((i + part) * fast.size + j) * to_size_, streaming);
      }
    }
  }
  return fits;
}

}  // namespace pinfeed::kernels
