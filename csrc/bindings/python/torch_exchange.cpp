#include "bindings/python/torch_exchange.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "bindings/python/imported.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

struct Torch {
  PyTypeObject* tensor_type;
  const dlpack::ExchangeApi* api;
};

Torch load_torch() {
  py::object type = py::module_::import("torch").attr("Tensor");
  if (!py::hasattr(type, "__dlpack_c_exchange_api__")) {
    const auto version = py::str(py::module_::import("torch").attr("__version__"));
    throw py::import_error("pinfeed needs torch 2.11 or later, got torch " + std::string(version));
  }
  py::object capsule = type.attr("__dlpack_c_exchange_api__");
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) throw py::error_already_set();
  while (api->version.major > 1 && api->previous != nullptr) api = api->previous;
  if (api->version.major != 1) {
    throw py::import_error("pinfeed needs DLPack 1, but this torch supports only version " +
                           std::to_string(api->version.major));
  }
  // Never freed: the type and its table live as long as the interpreter.
  return {reinterpret_cast<PyTypeObject*>(type.release().ptr()), api};
}

const Torch& torch() {
  return once([] { return load_torch(); });
}

using dlpack::TypeCode;

// In the order of ScalarKind.
constexpr TypeCode kCodes[] = {TypeCode::boolean, TypeCode::unsigned_int, TypeCode::signed_int,
                               TypeCode::floating, TypeCode::complex};

}  // namespace

bool is_tensor_itself(py::handle object) { return Py_TYPE(object.ptr()) == torch().tensor_type; }

bool is_tensor(py::handle object) {
  PyTypeObject* type = Py_TYPE(object.ptr());
  return type == torch().tensor_type || PyType_IsSubtype(type, torch().tensor_type);
}

dlpack::Tensor look_at_tensor(py::handle tensor) {
  dlpack::Tensor view;
  if (torch().api->tensor_from_object(tensor.ptr(), &view) != 0) throw py::error_already_set();
  return view;
}

std::optional<dlpack::Tensor> find_memory(py::handle tensor) {
  dlpack::Tensor view;
  const bool is_plain = torch().api->tensor_from_object(tensor.ptr(), &view) == 0;
  if (!is_plain) PyErr_Clear();
  return is_plain && view.on_cpu() ? std::optional(view) : std::nullopt;
}

dlpack::DataType dlpack_type(DType dtype) {
  const TypeCode code =
      dtype == kBfloat16 ? TypeCode::bfloat : kCodes[static_cast<std::size_t>(dtype.kind())];
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * dtype.item_size()), 1};
}

std::optional<DType> dtype_of(const dlpack::DataType& type) {
  const auto code = static_cast<TypeCode>(type.code);
  if (code == TypeCode::bfloat) return kBfloat16;
  const auto* const found = std::ranges::find(kCodes, code);
  if (found == std::end(kCodes) || type.lanes != 1 || type.bits % 8 != 0) return std::nullopt;
  const auto scalar =
      kernels::find_scalar(static_cast<ScalarKind>(found - kCodes), std::size_t{type.bits} / 8);
  return scalar ? std::optional(DType{*scalar}) : std::nullopt;
}

py::object adopt_as_tensor(dlpack::ManagedTensor* managed) {
  void* object = nullptr;
  if (torch().api->managed_to_object(managed, &object) != 0) {
    managed->deleter(managed);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(static_cast<PyObject*>(object));
}

}  // namespace pinfeed::bindings
