#include "bindings/python/scalar_types.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "dispatch/dispatch.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using dlpack::TypeCode;
using kernels::ScalarType;

constexpr Scalar kScalars[] = {
    {{TypeCode::boolean, 8}, ScalarType::boolean},
    {{TypeCode::unsigned_int, 8}, ScalarType::uint8},
    {{TypeCode::signed_int, 8}, ScalarType::int8},
    {{TypeCode::unsigned_int, 16}, ScalarType::uint16},
    {{TypeCode::signed_int, 16}, ScalarType::int16},
    {{TypeCode::unsigned_int, 32}, ScalarType::uint32},
    {{TypeCode::signed_int, 32}, ScalarType::int32},
    {{TypeCode::unsigned_int, 64}, ScalarType::uint64},
    {{TypeCode::signed_int, 64}, ScalarType::int64},
    {{TypeCode::floating, 16}, ScalarType::float16},
    {{TypeCode::bfloat, 16}, ScalarType::bfloat16},
    {{TypeCode::floating, 32}, ScalarType::float32},
    {{TypeCode::floating, 64}, ScalarType::float64},
    {{TypeCode::complex, 64}, ScalarType::complex64},
    {{TypeCode::complex, 128}, ScalarType::complex128},
};

const Scalar* find_named(const std::string& dtype) {
  return std::ranges::find_if(kScalars, [&](const Scalar& s) { return s.dtype.name() == dtype; });
}

}  // namespace

kernels::Cast Types::cast() const {
  return dispatch::active_isa().casts->find(from.type, to.type, scale);
}

Types find_types(DType from, const std::string& to, const Subject& subject, Scale scale,
                 std::optional<DType> shown) {
  const std::string given = shown.value_or(from).name();
  const auto source = std::ranges::find(kScalars, from, &Scalar::dtype);
  const auto target = find_named(to);
  std::string hint;
  if (source != std::end(kScalars) && target != std::end(kScalars)) {
    if (scale && !kernels::takes_scale(source->type, target->type)) {
      throw wrong_type(subject, "scale is for integers, got " + given, "",
                       "leave it out and multiply the batch");
    }
    const Types types{*source, *target, scale.value_or(1)};
    if (types.cast()) return types;
    hint = "cast in the dataset if what gets lost doesn't matter";
  }
  throw wrong_type(subject, "can't cast " + given + " to " + to, "", hint);
}

DType dtype_named(const std::string& dtype, const Subject& subject) {
  const Scalar* const found = find_named(dtype);
  if (found != std::end(kScalars)) return found->dtype;
  throw wrong_type(subject, "dtype must be numeric or bool, got " + dtype);
}

void require_numpy_has(DType dtype, const std::string& function) {
  if (dtype != kBfloat16) return;
  throw py::type_error(function +
                       ": NumPy has no bfloat16; pass tensors, or ask for float16 or float32");
}

double overflow_limit(DType dtype) {
  const int bits = dtype.code == TypeCode::complex ? dtype.bits / 2 : dtype.bits;
  if (dtype.code == TypeCode::bfloat) return 0x1.ffp127;
  if (bits == 16) return 65520;
  if (bits == 32) return 0x1.ffffffp127;
  return std::numeric_limits<double>::infinity();
}

bool may_not_fit(DType from, DType to) {
  using dlpack::TypeCode;
  const bool is_signed = from.code == TypeCode::signed_int;
  if (!is_signed && from.code != TypeCode::unsigned_int) return false;
  if (to.code == TypeCode::signed_int)
    return is_signed ? to.bits < from.bits : to.bits <= from.bits;
  return to.code == TypeCode::unsigned_int && (is_signed || to.bits < from.bits);
}

void require_integers_fit(const std::byte* data, std::span<const std::int64_t> shape,
                          const std::int64_t* strides, const Types& types, const Subject& subject) {
  if (!shape.empty()) {
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      require_integers_fit(data + i * strides[0], shape.subspan(1), strides + 1, types, subject);
    }
    return;
  }
  std::uint64_t bits = 0;
  if (types.cast()(data, 1, &bits)) return;
  const bool is_signed = types.from.dtype.code == dlpack::TypeCode::signed_int;
  find_types(types.from.dtype, is_signed ? "int64" : "uint64", subject).cast()(data, 1, &bits);
  const std::string value =
      is_signed ? std::to_string(static_cast<std::int64_t>(bits)) : std::to_string(bits);
  throw wrong_value(subject, "integers that " + types.to.dtype.name() + " can hold", value,
                    "pass a wider dtype");
}

}  // namespace pinfeed::bindings
