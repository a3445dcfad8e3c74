#include "bindings/python/torch_exchange.h"

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
    throw py::import_error("pinfeed needs torch 2.11 or later, this is " + std::string(version));
  }
  py::object capsule = type.attr("__dlpack_c_exchange_api__");
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) throw py::error_already_set();
  while (api->version.major > 1 && api->previous != nullptr) api = api->previous;
  if (api->version.major != 1) {
    throw py::import_error("pinfeed knows DLPack 1, this torch offers only version " +
                           std::to_string(api->version.major));
  }
  // Never freed: the type and its table live as long as the interpreter.
  return {reinterpret_cast<PyTypeObject*>(type.release().ptr()), api};
}

const Torch& torch() {
  return once([] { return load_torch(); });
}

}  // namespace

bool is_tensor(py::handle object) {
  PyTypeObject* type = Py_TYPE(object.ptr());
  return type == torch().tensor_type || PyType_IsSubtype(type, torch().tensor_type);
}

dlpack::Tensor look_at_tensor(py::handle tensor) {
  dlpack::Tensor view;
  if (torch().api->tensor_from_object(tensor.ptr(), &view) != 0) throw py::error_already_set();
  return view;
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
