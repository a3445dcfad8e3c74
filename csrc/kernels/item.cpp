#include "kernels/item.h"

#include <cmath>
#include <cstring>

#include "kernels/round.h"

namespace pinfeed::kernels {
namespace {

// All supported machines are little-endian.
template <class... Parts>
Item item_from(Parts... parts) {
  const std::array memory{parts...};
  Item item{.size = sizeof(memory)};
  std::memcpy(item.bytes.data(), memory.data(), sizeof(memory));
  return item;
}

bool overflows(float rounded, double number) {
  return !std::isfinite(rounded) && std::isfinite(number);
}

// `infinity`: the bits of the format's infinity.
std::optional<Item> half_item(std::uint16_t bits, unsigned infinity, double number) {
  if ((bits & 0x7fffu) >= infinity && std::isfinite(number)) return std::nullopt;
  return item_from(bits);
}

}  // namespace

std::optional<Item> item_of_integer(__int128 number, ScalarType type) {
  const auto [name, kind, size] = traits_of(type);
  const bool is_signed = kind == ScalarKind::signed_int;
  const std::size_t bits = kind == ScalarKind::boolean ? 1 : 8 * size - (is_signed ? 1 : 0);
  const __int128 limit = __int128{1} << bits;
  if (number >= limit || number < (is_signed ? -limit : 0)) return std::nullopt;
  Item item = item_from(static_cast<std::uint64_t>(number));
  item.size = static_cast<std::int64_t>(size);
  return item;
}

std::optional<Item> item_of(double real, double imaginary, ScalarType type) {
  const auto single = static_cast<float>(real), other = static_cast<float>(imaginary);
  switch (type) {
    case ScalarType::float16:
      return half_item(to_float16_bits(single), 0x7c00, real);
    case ScalarType::bfloat16:
      return half_item(to_bfloat16_bits(single), 0x7f80, real);
    case ScalarType::float32:
      if (overflows(single, real)) return std::nullopt;
      return item_from(single);
    case ScalarType::complex64:
      if (overflows(single, real) || overflows(other, imaginary)) return std::nullopt;
      return item_from(single, other);
    case ScalarType::float64:
      return item_from(real);
    case ScalarType::complex128:
      return item_from(real, imaginary);
    default:
      break;
  }
  constexpr double kBeyondAll = 0x1p64;
  if (!(std::fabs(real) < kBeyondAll) || real != std::floor(real)) return std::nullopt;
  return item_of_integer(static_cast<__int128>(real), type);
}

}  // namespace pinfeed::kernels
