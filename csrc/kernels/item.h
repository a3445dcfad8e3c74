// A number as an item of an array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/scalar_type.h"

namespace pinfeed::kernels {

// Calls visit(size) with the size (1, 2, 4, 8 or 16 bytes) as a std::integral_constant: a copy of a
// constant size compiles to a load and a store.
template <class Visit>
void visit_item_size(std::size_t size, const Visit& visit) {
  switch (size) {
    case 1:
      return visit(std::integral_constant<std::size_t, 1>());
    case 2:
      return visit(std::integral_constant<std::size_t, 2>());
    case 4:
      return visit(std::integral_constant<std::size_t, 4>());
    case 8:
      return visit(std::integral_constant<std::size_t, 8>());
    default:
      return visit(std::integral_constant<std::size_t, 16>());
  }
}

// The representation in memory.
struct Item {
  std::array<std::uint8_t, 16> bytes{};
  std::int64_t size = 1;  // bytes: 1, 2, 4, 8 or 16
};

// Returns the item of a type nearest to a number, ties to even, or none if the type can't hold it:
// an integer type holds whole numbers only, and a finite number must not become infinite. The
// imaginary part is for complex types.
std::optional<Item> item_of(double real, double imaginary, ScalarType type);

// The same for an integer type or bool, and numbers that double may not represent.
std::optional<Item> item_of_integer(__int128 number, ScalarType type);

}  // namespace pinfeed::kernels
