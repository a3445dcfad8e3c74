#include "kernels/cast.h"

#include "kernels/cast_items.h"

namespace pinfeed::kernels {
namespace {

struct ScalarCast {
  template <class From, class To>
  static bool cast(const void* in, std::size_t count, void* out, float scale) {
    return cast_items<From, To>(in, count, out, scale);
  }
};

}  // namespace

constexpr CastTable kCastScalar = make_casts<ScalarCast>();

bool takes_scale(ScalarType from, ScalarType to) {
  return is_integer(from) && to >= ScalarType::float16 && to <= ScalarType::float32;
}

}  // namespace pinfeed::kernels
