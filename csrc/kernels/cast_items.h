// Shared by the casts of all instruction sets: the types, the conversion of one item, the table of
// loops.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/cast.h"
#include "kernels/round.h"

namespace pinfeed::kernels {
namespace {

// Types that C++20 lacks, or that have invalid bit patterns (bool).
struct Bool {
  std::uint8_t byte;
};
struct Float16 {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};
template <class Part>
struct Complex {
  Part real;
  Part imaginary;
};

// In the order of ScalarType.
using Scalars = std::tuple<Bool, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                           std::uint32_t, std::int32_t, std::uint64_t, std::int64_t, Float16,
                           Bfloat16, float, double, Complex<float>, Complex<double>>;
static_assert([]<class... Types>(std::type_identity<std::tuple<Types...>>) {
  std::size_t i = 0;
  return sizeof...(Types) == kScalarTypes && ((sizeof(Types) == kScalars[i++].size) && ...);
}(std::type_identity<Scalars>{}));

template <class T>
inline constexpr bool is_complex = false;
template <class Part>
inline constexpr bool is_complex<Complex<Part>> = true;
template <class T>
inline constexpr bool is_floating =
    std::is_floating_point_v<T> || std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

// The kind of a type: bool, integer, real, complex. No cast goes to a lower kind.
template <class T>
inline constexpr int rank = is_complex<T>             ? 3
                            : is_floating<T>          ? 2
                            : std::is_same_v<T, Bool> ? 0
                                                      : 1;

// Branch-free select: compilers vectorize this.
inline std::int32_t select(bool condition, std::int32_t yes, std::int32_t no) {
  return no ^ ((yes ^ no) & -static_cast<std::int32_t>(condition));
}

// Exact. No step computes with a subnormal float32, because a thread may flush those to zero.
inline float to_float(Float16 value) {
  constexpr float kOrigin = 0.5f;  // kOrigin + m * 2^-24 has the mantissa m
  const std::int32_t magnitude = value.bits & 0x7fff;
  const float shifted = std::bit_cast<float>(std::bit_cast<std::int32_t>(kOrigin) + magnitude);
  const auto subnormal = std::bit_cast<std::int32_t>(shifted - kOrigin);
  const std::int32_t normal = (magnitude << 13) + 0x38000000;
  const std::int32_t quiet = select(magnitude > 0x7c00, 0x400000, 0);  // as vcvtph2ps does
  const std::int32_t infinity_or_nan = (magnitude << 13) | 0x7f800000 | quiet;
  const std::int32_t number = select(magnitude < 0x400, subnormal, normal);
  const std::int32_t all = select(magnitude < 0x7c00, number, infinity_or_nan);
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(all));
}

inline float to_float(Bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

template <class To, class From>
inline To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return convert<To>(static_cast<std::uint8_t>(value.byte != 0));
  } else if constexpr (std::is_same_v<From, Float16> || std::is_same_v<From, Bfloat16>) {
    return convert<To>(to_float(value));
  } else if constexpr (is_complex<From>) {
    using Part = decltype(To::real);
    return {static_cast<Part>(value.real), static_cast<Part>(value.imaginary)};
  } else if constexpr (is_complex<To>) {
    return {convert<decltype(To::real)>(value), 0};
  } else if constexpr (std::is_same_v<To, Float16>) {
    return {to_float16_bits(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return {to_bfloat16_bits(static_cast<float>(value))};
  } else {
    return static_cast<To>(value);
  }
}

// The highest bit: the sign of a signed integer.
template <class Integer>
inline constexpr Integer kSign =
    static_cast<Integer>(std::make_unsigned_t<Integer>{1} << (8 * sizeof(Integer) - 1));

// Whether an integer type has values that another type lacks or stores as infinity.
template <class From, class To>
inline constexpr bool may_not_fit = [] {
  if constexpr (std::is_integral_v<From> && std::is_same_v<To, Float16>) {
    return !std::in_range<std::int16_t>(std::numeric_limits<From>::max());
  }
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    return !std::in_range<To>(std::numeric_limits<From>::max()) ||
           !std::in_range<To>(std::numeric_limits<From>::min());
  }
  return false;
}();

// Whether a cast multiplies: integers that become float32, directly or on the way to 16 bits.
template <class From, class To>
inline constexpr bool is_scaled =
    std::is_integral_v<From> &&
    (std::is_same_v<To, float> || std::is_same_v<To, Float16> || std::is_same_v<To, Bfloat16>);

// A separate loop, because a plain cast with a product in it takes 8 to 15% longer in the L1 cache.
template <class From, class To>
[[gnu::always_inline]] inline void scale_items(const std::byte* __restrict from, std::size_t count,
                                               std::byte* __restrict to, float scale) {
  for (std::size_t i = 0; i < count; ++i) {
    From item;
    std::memcpy(&item, from + i * sizeof(From), sizeof(From));
    const To result = convert<To>(static_cast<float>(item) * scale);
    std::memcpy(to + i * sizeof(To), &result, sizeof(To));
  }
}

// Inlined into a function that sets the target, which decides how the loop is vectorized.
template <class From, class To>
[[gnu::always_inline]] inline bool cast_items(const void* in, std::size_t count, void* out,
                                              float scale = 1) {
  const std::byte* __restrict from = static_cast<const std::byte*>(in);
  std::byte* __restrict to = static_cast<std::byte*>(out);
  if constexpr (is_scaled<From, To>) {
    if (scale != 1) {
      scale_items<From, To>(from, count, to, scale);
      return true;
    }
  }
  // Collects lost bits in `lost` instead of branching, so that the compiler vectorizes the loop.
  [[maybe_unused]] std::conditional_t<std::is_integral_v<From>, From, int> lost{};
  for (std::size_t i = 0; i < count; ++i) {
    From item;
    std::memcpy(&item, from + i * sizeof(From), sizeof(From));
    const To result = convert<To>(item);
    std::memcpy(to + i * sizeof(To), &result, sizeof(To));
    if constexpr (may_not_fit<From, To>) {
      // Between types of one size, or from signed to a larger unsigned type, only the sign can be
      // lost.
      if constexpr (std::is_same_v<To, Float16>) {
        lost |= static_cast<From>((result.bits & 0x7fff) == 0x7c00);
      } else if constexpr (sizeof(From) <= sizeof(To)) {
        lost |= item;
      } else {
        lost |= static_cast<From>(item ^ static_cast<From>(result));
        // 65,480 becomes -56 as int8, and that again 65,480.
        if constexpr (std::is_unsigned_v<From> && std::is_signed_v<To>) {
          lost |= static_cast<From>(static_cast<From>(result) & kSign<From>);
        }
      }
    }
  }
  if constexpr (may_not_fit<From, To> && !std::is_same_v<To, Float16> &&
                sizeof(From) <= sizeof(To)) {
    return (lost & kSign<From>) == 0;
  } else {
    return lost == 0;
  }
}

// `Isa` has cast<From, To>, a CastItems.
template <class Isa>
constexpr CastTable make_casts() {
  CastTable table{};
  const auto fill = [&]<std::size_t From, std::size_t To>() {
    using Source = std::tuple_element_t<From, Scalars>;
    using Target = std::tuple_element_t<To, Scalars>;
    if constexpr (rank<Source> <= rank<Target>) {
      table.casts[From][To] = Isa::template cast<Source, Target>;
    }
  };
  const auto fill_row = [&]<std::size_t From, std::size_t... To>(std::index_sequence<To...>) {
    (fill.template operator()<From, To>(), ...);
  };
  [&]<std::size_t... From>(std::index_sequence<From...> types) {
    (fill_row.template operator()<From>(types), ...);
  }(std::make_index_sequence<kScalarTypes>());
  return table;
}

}  // namespace
}  // namespace pinfeed::kernels
