// Casts for AVX2 + F16C. The compiler vectorizes all of them except float16, which needs F16C
// instructions: float16 is converted to and from float32, with a tile of float32 between it and all
// other types.
#include <algorithm>

#include "kernels/cast_items.h"
#include "kernels/image_avx2.h"

namespace pinfeed::kernels {
namespace {

constexpr std::size_t kTile = 512;  // items

PINFEED_AVX2 void widen_float16(const std::byte* from, std::size_t count, std::byte* to) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 floats = _mm256_cvtph_ps(load16(from + 2 * i));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + 4 * i), floats);
  }
  cast_items<Float16, float>(from + 2 * i, count - i, to + 4 * i);
}

PINFEED_AVX2 void round_to_float16(const std::byte* from, std::size_t count, std::byte* to) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 floats = _mm256_loadu_ps(reinterpret_cast<const float*>(from + 4 * i));
    store16<false>(to + 2 * i, _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
  }
  cast_items<float, Float16>(from + 4 * i, count - i, to + 2 * i);
}

// Whether integers, as float32, are finite as float16.
PINFEED_AVX2 bool are_finite(const std::byte* from, std::size_t count) {
  constexpr float kInfinite = 65520;
  const auto* const floats = reinterpret_cast<const float*>(from);
  int infinite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    infinite |=
        static_cast<int>(floats[i] >= kInfinite) | static_cast<int>(floats[i] <= -kInfinite);
  }
  return infinite == 0;
}

struct Avx2Cast {
  template <class From, class To>
  PINFEED_AVX2 static bool cast(const void* in, std::size_t count, void* out, float scale) {
    const auto* from = static_cast<const std::byte*>(in);
    auto* to = static_cast<std::byte*>(out);
    if constexpr (std::is_same_v<From, To> ||
                  (!std::is_same_v<From, Float16> && !std::is_same_v<To, Float16>)) {
      return cast_items<From, To>(from, count, to, scale);
    } else if constexpr (std::is_same_v<From, Float16> && std::is_same_v<To, float>) {
      widen_float16(from, count, to);
    } else if constexpr (std::is_same_v<From, float>) {
      round_to_float16(from, count, to);
    } else {
      alignas(32) std::byte tile[kTile * sizeof(float)];
      bool fits = true;
      for (std::size_t begin = 0; begin < count; begin += kTile) {
        const std::size_t items = std::min(kTile, count - begin);
        const std::byte* const part = from + begin * sizeof(From);
        if constexpr (std::is_same_v<From, Float16>) {
          widen_float16(part, items, tile);
          cast_items<float, To>(tile, items, to + begin * sizeof(To));
        } else {
          cast_items<From, float>(part, items, tile, scale);
          round_to_float16(tile, items, to + begin * sizeof(To));
          if constexpr (may_not_fit<From, To>)
            fits = fits && (scale != 1 || are_finite(tile, items));
        }
      }
      return fits;
    }
    return true;
  }
};

}  // namespace

constexpr CastTable kCastAvx2 = make_casts<Avx2Cast>();

}  // namespace pinfeed::kernels
