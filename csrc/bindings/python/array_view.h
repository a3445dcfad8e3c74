// A common view of ndarrays and CPU tensors.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arrays/layout.h"
#include "bindings/python/problem.h"
#include "kernels/scalar_type.h"

namespace pinfeed::bindings {

using kernels::ScalarKind;
using kernels::ScalarType;

// The type of an array's items.
struct DType {
  ScalarType type;

  bool operator==(const DType&) const = default;
  std::size_t item_size() const { return kernels::scalar_size(type); }
  std::string name() const { return kernels::traits_of(type).name; }
  ScalarKind kind() const { return kernels::traits_of(type).kind; }
  bool is_integer() const { return kernels::is_integer(type); }  // not bool
  bool is_floating() const { return kind() == ScalarKind::floating; }
};

inline constexpr DType kUint8{ScalarType::uint8};
inline constexpr DType kBool{ScalarType::boolean};
inline constexpr DType kInt32{ScalarType::int32};
inline constexpr DType kInt64{ScalarType::int64};
inline constexpr DType kFloat64{ScalarType::float64};
inline constexpr DType kFloat32{ScalarType::float32};
inline constexpr DType kFloat16{ScalarType::float16};
inline constexpr DType kBfloat16{ScalarType::bfloat16};

using arrays::Extent;
using arrays::Shape;
using arrays::shape_text;

// A function's argument in messages; or an entry of a batch, by its name.
inline std::string named(const std::string& function, const std::string& argument) {
  return argument.empty() ? function : function + ": " + argument;
}

// A view of an array. Valid while the object lives and is not resized.
struct ArrayView {
  std::byte* data;
  DType dtype;
  std::span<const std::int64_t> shape;
  bool is_tensor;
  bool writable;

  std::size_t axes() const { return shape.size(); }
  std::int64_t stride(std::size_t axis) const { return strides_[axis] * stride_unit_; }  // bytes
  std::int64_t items() const;
  bool contiguous() const;
  Shape byte_strides() const;

  const std::int64_t* strides_;
  std::int64_t stride_unit_;
};

// Throws TypeError if the object is not an ndarray or a tensor, for tensors that are not on the
// CPU, and for dtypes that are not numbers in this machine's byte order.
ArrayView view_array(pybind11::handle object, const Subject& subject);

inline Extent extent(const ArrayView& view) {
  return arrays::extent(view.data, view.shape, {view.strides_, view.axes()}, view.stride_unit_,
                        view.dtype.item_size());
}

}  // namespace pinfeed::bindings
