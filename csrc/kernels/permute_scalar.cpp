#include <algorithm>

#include "kernels/permute_runs.h"

namespace pinfeed::kernels {
namespace {

// This many pixels stay in the L1 cache while all planes are written from them.
constexpr std::size_t kStretch = 256;

struct Scalar {
  template <std::size_t Item, std::size_t Channels>
  static void deinterleave(const std::byte* pixels, std::size_t count, std::byte* planes,
                           std::ptrdiff_t plane_stride, bool) {
    for (std::size_t begin = 0; begin < count; begin += kStretch) {
      deinterleave_scalar<Item, Channels>(pixels + begin * Item * Channels,
                                          std::min(kStretch, count - begin), planes + begin * Item,
                                          plane_stride);
    }
  }

  template <std::size_t Item, std::size_t Channels>
  static void interleave(const std::byte* planes, std::ptrdiff_t plane_stride, std::size_t count,
                         std::byte* pixels, bool) {
    interleave_scalar<Item, Channels>(planes, plane_stride, count, pixels);
  }

  static void replace(const std::byte* from, std::size_t count, std::int64_t value, std::int64_t by,
                      std::byte* to) {
    replace_items(from, count, value, by, to);
  }
};

}  // namespace

constexpr PermuteRuns kPermuteScalar = make_permute_runs<Scalar>();

}  // namespace pinfeed::kernels
