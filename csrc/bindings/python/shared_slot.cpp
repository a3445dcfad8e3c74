// Memory that processes share: slots as tensors that release their slot when they die, and shared
// integers.
#include "runtime/shared_slot.h"

#include <pybind11/numpy.h>

#include <memory>
#include <string>
#include <system_error>

#include "bindings/python/options.h"
#include "bindings/python/torch_exchange.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using runtime::SharedSlot;
using Slot = std::shared_ptr<SharedSlot>;

// Returns make(); raises OSError instead of std::system_error.
template <typename Function>
auto or_os_error(Function&& make) {
  try {
    const py::gil_scoped_release unlocked;  // zeroes and maps memory
    return make();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, error.what());
    throw py::error_already_set();
  }
}

// A tensor over bytes of a slot; its end calls (slot.*end)().
py::object bytes_tensor(const Slot& slot, std::size_t start, std::size_t bytes,
                        void (SharedSlot::*end)() noexcept) {
  return new_tensor(slot->data() + start, {static_cast<std::int64_t>(bytes)}, kUint8,
                    [slot, end](void*) { (*slot.*end)(); });
}

py::object claim(const Slot& slot, std::size_t bytes) {
  if (bytes > slot->capacity() || !slot->claim()) return py::none();
  return bytes_tensor(slot, 0, bytes, &SharedSlot::drop);
}

py::object receive(const Slot& slot, std::size_t start, std::size_t bytes) {
  if (start > slot->capacity() || bytes > slot->capacity() - start || !slot->receive()) {
    return py::none();
  }
  return bytes_tensor(slot, start, bytes, &SharedSlot::let_go);
}

using SharedIntegers = py::array_t<std::int64_t, py::array::c_style>;

// One operation on an integer that several processes share.
bool compare_exchange(SharedIntegers integers, py::ssize_t index, std::int64_t expected,
                      std::int64_t desired) {
  if (index < 0 || index >= integers.size()) {
    throw wrong_index({"compare_exchange"}, "index " + std::to_string(index) +
                                                " is out of range for " +
                                                std::to_string(integers.size()) + " integers");
  }
  return __atomic_compare_exchange_n(integers.mutable_data() + index, &expected, desired, false,
                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

}  // namespace

void register_shared_slot(py::module_& m) {
  m.attr("page_bytes") = SharedSlot::page_bytes();
  m.def(
      "create_shared_file",
      [](const std::string& name) {
        return or_os_error([&] { return runtime::create_shared_file(name); });
      },
      py::arg("name"));
  bind_class<SharedSlot, Slot>(m, "SharedSlot")
      .def(py::init([](int descriptor, std::size_t offset, std::size_t capacity, bool is_new) {
             return or_os_error([&] {
               return std::make_shared<SharedSlot>(descriptor, offset, capacity, is_new);
             });
           }),
           py::arg("descriptor"), py::arg("offset"), py::arg("capacity"), py::arg("is_new"))
      .def_property_readonly("offset", &SharedSlot::offset)
      .def_property_readonly("capacity", &SharedSlot::capacity)
      .def_property_readonly(
          "address",
          [](const SharedSlot& slot) { return reinterpret_cast<std::uintptr_t>(slot.data()); })
      .def_property_readonly("readers", &SharedSlot::readers)
      .def("claim", &claim, py::arg("bytes"))
      .def("send", &SharedSlot::send)
      .def("receive", &receive, py::arg("start"), py::arg("bytes"))
      .def("discard", &SharedSlot::discard, py::call_guard<py::gil_scoped_release>())
      .def("retire", &SharedSlot::retire, py::call_guard<py::gil_scoped_release>());
  m.def("compare_exchange", &compare_exchange, py::arg("integers").noconvert(), py::arg("index"),
        py::arg("expected"), py::arg("desired"));
}

}  // namespace pinfeed::bindings
