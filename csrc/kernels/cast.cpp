#include "kernels/cast.h"

#include <array>

#include "kernels/cast_items.h"

namespace pinfeed::kernels {
namespace {

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

}  // namespace pinfeed::kernels
