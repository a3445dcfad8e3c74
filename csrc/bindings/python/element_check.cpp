#include "bindings/python/element_check.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "bindings/python/scalar_types.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using dlpack::TypeCode;

bool is_integer(DType dtype) {
  return dtype.code == TypeCode::signed_int || dtype.code == TypeCode::unsigned_int ||
         dtype.code == TypeCode::boolean;
}

// Elements of one dtype on their way to another.
class Elements {
 public:
  Elements(DType from, DType to, const std::string& subject)
      : from_(from), to_(to), limit_(overflow_limit(to)), subject_(subject) {
    const bool is_complex = from.code == TypeCode::complex;
    parts_ = is_complex ? 2 : 1;
    widen_ = find_types(from, is_complex ? "complex128" : "float64", subject).cast();
  }

  // All elements of a part of the array, from `axis` on.
  void check(const std::byte* item, const std::int64_t* shape, const std::int64_t* strides,
             std::size_t axes) const {
    if (axes == 0) {
      if (!fits(item)) throw does_not_fit(item);
      return;
    }
    for (std::int64_t i = 0; i < *shape; ++i, item += *strides) {
      check(item, shape + 1, strides + 1, axes - 1);
    }
  }

 private:
  bool fits(const std::byte* item) const {
    if (is_integer(from_) && is_integer(to_)) return integer_fits(item);
    double parts[2];
    widen_(item, 1, parts);
    for (int i = 0; i < parts_; ++i) {
      // 16-bit floats are rounded to float32 on the way.
      const double part =
          to_.bits == 16 ? static_cast<double>(static_cast<float>(parts[i])) : parts[i];
      if (std::isfinite(parts[i]) && !(std::fabs(part) < limit_)) return false;
    }
    return true;
  }

  bool integer_fits(const std::byte* item) const {
    if (from_.code == TypeCode::boolean) return true;
    std::uint64_t bits = 0;
    std::memcpy(&bits, item, from_.item_size());
    const int unused = 64 - from_.bits;
    const auto value = static_cast<std::int64_t>(bits << unused) >> unused;  // sign extended
    if (from_.code == TypeCode::signed_int && value < 0) {
      return to_.code == TypeCode::signed_int && value >> (to_.bits - 1) == -1;
    }
    const int digits = to_.code == TypeCode::signed_int ? to_.bits - 1 : to_.bits;
    return digits == 64 || bits >> digits == 0;
  }

  py::value_error does_not_fit(const std::byte* item) const {
    double parts[2];
    widen_(item, 1, parts);
    std::string value = py::repr(py::float_(parts[0]));
    if (parts_ == 2) value += " and " + std::string(py::repr(py::float_(parts[1]))) + "j";
    return py::value_error(subject_ + ": expected values that " + to_.name() + " can hold, got " +
                           value);
  }

  DType from_;
  DType to_;
  double limit_;
  const std::string& subject_;
  int parts_;
  kernels::Cast widen_;
};

}  // namespace

bool checks_elements() {
  static const bool asked = [] {
    const char* value = std::getenv("PINFEED_DEBUG");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return asked;
}

void check_elements(const Sequences& sequences, DType dtype, const std::string& name) {
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    if (sequences.dtype(i) == dtype) continue;
    const std::string subject = Subject{name, static_cast<std::int64_t>(i)}.text();
    Elements(sequences.dtype(i), dtype, subject)
        .check(sequences.data(i), sequences.shape(i), sequences.strides(i), sequences.axes());
  }
}

}  // namespace pinfeed::bindings
