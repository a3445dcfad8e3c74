// Casts, against values converted one at a time.
#include "kernels/cast.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/check.h"
#include "tests/every_isa.h"
#include "tests/guarded_memory.h"
#include "tests/rounding.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::dispatch::Isa;
using pinfeed::kernels::kScalarTypes;
using pinfeed::kernels::scalar_size;
using pinfeed::kernels::ScalarKind;
using pinfeed::kernels::ScalarType;
using pinfeed::kernels::takes_scale;
using pinfeed::kernels::traits_of;
using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void append(Bytes& to, T value) {
  const std::size_t end = to.size();
  to.resize(end + sizeof(T));
  std::memcpy(to.data() + end, &value, sizeof(T));
}

// A number of any type: an integer, or a real or complex number, which float64 holds exactly.
struct Number {
  bool is_integer = false, is_signed = false;
  std::uint64_t integer = 0;  // two's complement if negative
  double real = 0, imaginary = 0;

  template <class Float>
  Float as() const {
    if (!is_integer) return static_cast<Float>(real);
    return is_signed ? static_cast<Float>(static_cast<std::int64_t>(integer))
                     : static_cast<Float>(integer);
  }
};

template <class Integer>
Number integer_number(Integer value) {
  return {true, std::is_signed_v<Integer>, static_cast<std::uint64_t>(value), 0, 0};
}

Number real_number(double real, double imaginary = 0) { return {false, false, 0, real, imaginary}; }

// 0: bool, 1: integer, 2: real, 3: complex.
int rank(ScalarType type) {
  return (type >= ScalarType::uint8) + (type >= ScalarType::float16) +
         (type >= ScalarType::complex64);
}

// Machines are little-endian.
Number number(ScalarType type, const std::byte* from) {
  const std::size_t size = scalar_size(type);
  if (rank(type) < 2) {
    std::uint64_t integer = 0;
    std::memcpy(&integer, from, size);
    if (type == ScalarType::boolean) return integer_number<std::uint8_t>(integer != 0);
    const std::size_t unused = 64 - 8 * size;
    integer <<= unused;
    if (traits_of(type).kind == ScalarKind::unsigned_int) return integer_number(integer >> unused);
    return integer_number(static_cast<std::int64_t>(integer) >> unused);
  }
  if (type == ScalarType::float16) return real_number(float16_value(read<std::uint16_t>(from)));
  if (type == ScalarType::bfloat16) {
    return real_number(std::bit_cast<float>(std::uint32_t{read<std::uint16_t>(from)} << 16));
  }
  const std::size_t parts = rank(type) == 3 ? 2 : 1;
  const auto part = [&](const std::byte* at) {
    return size / parts == 4 ? static_cast<double>(read<float>(at)) : read<double>(at);
  };
  return real_number(part(from), parts == 2 ? part(from + size / 2) : 0);
}

Bytes expected_bytes(const Number& value, ScalarType type) {
  Bytes bytes;
  if (rank(type) < 2) {
    append(bytes, value.integer);
    bytes.resize(scalar_size(type));
  } else if (type == ScalarType::float16) {
    append(bytes, float16_bits(value.as<float>()));
  } else if (type == ScalarType::bfloat16) {
    append(bytes, bfloat16_bits(value.as<float>()));
  } else {
    const bool is_complex = rank(type) == 3;
    const auto append_parts = [&]<class Float>(Float) {
      append(bytes, value.as<Float>());
      if (is_complex) append(bytes, static_cast<Float>(value.imaginary));
    };
    scalar_size(type) == (is_complex ? 8 : 4) ? append_parts(float{}) : append_parts(double{});
  }
  return bytes;
}

template <class Visit>
void for_each_cast(const Visit& visit) {
  for (std::size_t from = 0; from < kScalarTypes; ++from) {
    for (std::size_t to = 0; to < kScalarTypes; ++to) {
      const auto source = static_cast<ScalarType>(from), target = static_cast<ScalarType>(to);
      if (rank(source) <= rank(target)) visit(source, target);
    }
  }
}

std::string describe(ScalarType from, ScalarType to) {
  return "type " + std::to_string(static_cast<int>(from)) + " to " +
         std::to_string(static_cast<int>(to));
}

// Whether two items are the same number, or both NaN.
bool same_item(ScalarType type, const std::byte* item, const std::byte* expected) {
  if (std::memcmp(item, expected, scalar_size(type)) == 0) return true;
  const Number a = number(type, item), b = number(type, expected);
  const auto same = [](double x, double y) {
    return std::isnan(x) ? std::isnan(y) : x == y && std::signbit(x) == std::signbit(y);
  };
  return !a.is_integer && same(a.real, b.real) && same(a.imaginary, b.imaginary);
}

// Numbers at which the result changes, as the bytes of every type; then random bytes.
Bytes interesting_items(ScalarType type) {
  Bytes items;
  const auto append_all = [&](const Number& value) {
    const Bytes bytes = expected_bytes(value, type);
    items.insert(items.end(), bytes.begin(), bytes.end());
  };
  if (rank(type) < 2) {
    for (int bit = 0; bit < 64; ++bit) {
      for (const std::uint64_t near : {-1, 0, 1}) {
        append_all(integer_number((std::uint64_t{1} << bit) + near));
        append_all(integer_number(-(std::uint64_t{1} << bit) + near));
        // Halfway between two float32, two bfloat16 or two float16 numbers, or just beside.
        for (const int digits : {8, 11, 24}) {
          if (bit >= digits) {
            append_all(integer_number((std::uint64_t{1} << bit) +
                                      (std::uint64_t{1} << (bit - digits)) + near));
          }
        }
      }
    }
  } else {
    for (int exponent = -1080; exponent <= 1023; ++exponent) {
      const double power = std::ldexp(1.0, exponent);
      for (const double factor : {1.0, 1 + 0x1p-8, 1 + 0x1p-11, 1 + 0x1p-24, 1 + 0x3p-24,
                                  1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-11 + 0x1p-40, 2 - 0x1p-52}) {
        append_all(real_number(power * factor, -power));
        append_all(real_number(-power * factor, power));
      }
    }
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double special : {0.0, -0.0, infinity, -infinity, nan, 65519.99, 65520.0}) {
      append_all(real_number(special, -special));
    }
  }
  if (type == ScalarType::float16 || type == ScalarType::bfloat16) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      append(items, static_cast<std::uint16_t>(bits));
    }
  }
  Random random(1);
  for (std::size_t i = 0; i < 1000 * scalar_size(type); ++i) {
    items.push_back(static_cast<std::byte>(random() & 0xff));
  }
  return items;
}

void check_values(const Isa& isa, float scale) {
  for_each_cast([&](ScalarType from, ScalarType to) {
    const bool is_scaled = rank(from) == 1 && rank(to) == 2 && to != ScalarType::float64;
    CHECK(takes_scale(from, to) == is_scaled);
    if (scale != 1 && !is_scaled) return;
    const Bytes items = interesting_items(from);
    const std::size_t in_size = scalar_size(from), out_size = scalar_size(to);
    const std::size_t count = items.size() / in_size;
    for (const std::size_t misalignment : {0, 1}) {
      Bytes in(misalignment);
      in.insert(in.end(), items.begin(), items.end());
      MarkedOutput out(count * out_size, misalignment);
      isa.casts->find(from, to, scale)(in.data() + misalignment, count, out.data());
      Bytes expected;
      std::size_t different = 0;
      for (std::size_t i = 0; i < count; ++i) {
        // Between equal types nothing is checked.
        const std::byte* const item = items.data() + i * in_size;
        Number value = number(from, item);
        if (is_scaled) value = real_number(value.as<float>() * scale);
        const Bytes bytes = from == to ? Bytes(item, item + in_size) : expected_bytes(value, to);
        std::byte* const result = out.data() + i * out_size;
        different += !same_item(to, result, bytes.data());
        expected.insert(expected.end(), result, result + out_size);
      }
      if (different != 0) throw std::runtime_error("wrong values: " + describe(from, to));
      CHECK(out.equals(expected));  // no stray writes
    }
  });
}

void test_values(const Isa& isa) {
  for (const float scale : {1.0f, 1.0f / 32768, -0.3f, 3e30f}) check_values(isa, scale);
}

void test_counts(const Isa& isa) {
  const GuardedBytes memory(4096);
  Random random(2);
  for_each_cast([&](ScalarType from, ScalarType to) {
    for (std::size_t count = 0; count < 70; ++count) {
      const std::size_t bytes = count * scalar_size(from);
      const auto* const in = reinterpret_cast<const std::byte*>(
          count == 0 ? memory.end()
                     : memory.place(0, static_cast<std::ptrdiff_t>(bytes) - 1, random));
      MarkedOutput out(count * scalar_size(to), random() % 64);
      isa.casts->find(from, to)(in, count, out.data());
      Bytes one_by_one(count * scalar_size(to));
      for (std::size_t i = 0; i < count; ++i) {
        isa.casts->find(from, to)(in + i * scalar_size(from), 1,
                                  one_by_one.data() + i * scalar_size(to));
      }
      CHECK(out.equals(one_by_one));
    }
  });
}

void test_refusals(const Isa& isa) {
  for (std::size_t from = 0; from < kScalarTypes; ++from) {
    for (std::size_t to = 0; to < kScalarTypes; ++to) {
      const auto source = static_cast<ScalarType>(from), target = static_cast<ScalarType>(to);
      CHECK(bool(isa.casts->find(source, target)) == (rank(source) <= rank(target)));
    }
  }
}

}  // namespace

void cast_tests() {
  run_on_isas("casts: interesting and random values", test_values);
  run_on_isas("casts: any number of items", test_counts);
  run_on_isas("casts: refused types", test_refusals);
}
