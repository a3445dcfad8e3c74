#include "bindings/python/scalar_types.h"

#include <algorithm>

#include "dispatch/dispatch.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

std::optional<DType> find_named(const std::string& dtype) {
  const auto found = std::ranges::find(kernels::kScalars, dtype, &kernels::Scalar::name);
  if (found == kernels::kScalars.end()) return std::nullopt;
  return DType{static_cast<ScalarType>(found - kernels::kScalars.begin())};
}

}  // namespace

kernels::Cast Types::cast() const {
  return dispatch::active_isa().casts->find(from.type, to.type, scale);
}

Types find_types(DType from, const std::string& to, const Subject& subject, Scale scale,
                 std::optional<DType> shown) {
  const std::string given = shown.value_or(from).name();
  const std::optional<DType> target = find_named(to);
  std::string hint;
  if (target) {
    if (scale && !kernels::takes_scale(from.type, target->type)) {
      throw wrong_type(subject, "scale is for integers, got " + given, "",
                       "leave it out and multiply the batch");
    }
    const Types types{from, *target, scale.value_or(1)};
    if (types.cast()) return types;
    hint = "cast in the dataset if what gets lost doesn't matter";
  }
  throw wrong_type(subject, "can't cast " + given + " to " + to, "", hint);
}

DType dtype_named(const std::string& dtype, const Subject& subject) {
  if (const std::optional<DType> found = find_named(dtype)) return *found;
  throw wrong_type(subject, "dtype must be numeric or bool, got " + dtype);
}

void require_numpy_has(DType dtype, const std::string& function) {
  if (dtype != kBfloat16) return;
  throw py::type_error(function +
                       ": NumPy has no bfloat16; pass tensors, or ask for float16 or float32");
}

bool may_not_fit(DType from, DType to) {
  if (!from.is_integer() || !to.is_integer()) return false;
  const std::size_t from_size = from.item_size(), to_size = to.item_size();
  if (from.kind() == to.kind()) return to_size < from_size;
  return from.kind() == ScalarKind::signed_int || to_size <= from_size;
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
  const bool is_signed = types.from.kind() == ScalarKind::signed_int;
  find_types(types.from, is_signed ? "int64" : "uint64", subject).cast()(data, 1, &bits);
  const std::string value =
      is_signed ? std::to_string(static_cast<std::int64_t>(bits)) : std::to_string(bits);
  throw wrong_value(subject, "integers that " + types.to.name() + " can hold", value,
                    "pass a wider dtype");
}

}  // namespace pinfeed::bindings
