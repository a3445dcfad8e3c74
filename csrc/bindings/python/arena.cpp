// The arena, as Python sees it: tensors whose death lets the slot go.
#include "bindings/python/arena.h"

#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <system_error>

#include "bindings/python/module.h"
#include "bindings/python/torch_exchange.h"
#include "runtime/buffer_pool.h"
#include "runtime/process_identity.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using runtime::Arena;
using runtime::SlotHold;

// A tensor over a slot, which drop(hold) lets go. In a forked child, which merely inherited the
// tensor, nothing does.
py::object slot_tensor(Arena& arena, const SlotHold& hold, const Shape& shape, DType dtype,
                       void (Arena::*drop)(const SlotHold&) noexcept) {
  const std::uint32_t depth = runtime::fork_depth();
  return new_tensor(hold.data, shape, dtype, [&arena, hold, drop, depth](void*) {
    if (depth == runtime::fork_depth()) (arena.*drop)(hold);
  });
}

py::object bytes_tensor(Arena& arena, const SlotHold& hold, std::size_t bytes,
                        void (Arena::*drop)(const SlotHold&) noexcept) {
  return slot_tensor(arena, hold, {static_cast<std::int64_t>(bytes)}, kUint8, drop);
}

// Growing maps pages, and looks at other processes, so others may go on meanwhile.
std::optional<SlotHold> claim(Arena& arena, std::size_t bytes) {
  const py::gil_scoped_release unlocked;
  const std::optional<SlotHold> hold = arena.claim(bytes);
  if (hold && runtime::BufferPool::instance().poison()) std::memset(hold->data, 0xCB, bytes);
  return hold;
}

// OSError instead of what the standard library throws.
template <typename Function>
Arena& made(Function&& make) {
  try {
    return make();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, error.what());
    throw py::error_already_set();
  }
}

py::object allocate(Arena& arena, std::size_t bytes) {
  const std::optional<SlotHold> hold = claim(arena, bytes);
  return hold ? bytes_tensor(arena, *hold, bytes, &Arena::drop_held) : py::none();
}

py::object send(Arena& arena, std::uintptr_t address, std::size_t bytes) {
  const auto message = arena.send(reinterpret_cast<const void*>(address), bytes);
  if (!message) return py::none();
  return py::make_tuple(message->slot, message->generation, message->offset);
}

py::object receive(Arena& arena, std::uint32_t slot, std::uint32_t generation, std::size_t offset,
                   std::size_t bytes) {
  std::optional<SlotHold> hold;
  {
    const py::gil_scoped_release release;
    hold = arena.receive({slot, generation, offset}, bytes);
  }
  if (!hold) return py::none();
  return bytes_tensor(arena, *hold, bytes, &Arena::release_taken);
}

std::vector<std::uint32_t> next_released(Arena& arena, double seconds) {
  // Waits.
  const py::gil_scoped_release release;
  return arena.released().take(std::chrono::duration<double>(seconds));
}

void drop_taken(Arena& arena, const std::vector<std::uint32_t>& slots) {
  for (const std::uint32_t slot : slots) arena.drop_taken({slot, 0, nullptr});
}

py::dict stats(const Arena& arena) {
  const Arena::Stats stats = arena.stats();
  py::dict result;
  result["slots"] = stats.slots;
  result["live_slots"] = stats.live_slots;
  result["live_bytes"] = stats.live_bytes;
  result["resident_bytes"] = stats.resident_bytes;
  result["high_water"] = stats.high_water;
  result["max_bytes"] = stats.max_bytes;
  result["grows"] = stats.grows;
  result["waits"] = stats.waits;
  result["workers"] = stats.others;
  return result;
}

// For what gives memory back or reads what the system knows of each process.
using Unlocked = py::call_guard<py::gil_scoped_release>;

}  // namespace

const ArenaOutputs* ArenaOutputs::in(py::handle object) {
  return py::isinstance<ArenaOutputs>(object) ? object.cast<const ArenaOutputs*>() : nullptr;
}

py::object ArenaOutputs::allocate(const Shape& shape, DType dtype, std::size_t bytes,
                                  std::byte** data) const {
  std::optional<SlotHold> hold = claim(arena, bytes);
  if (!hold) {
    for (const py::handle turn : wait(bytes)) {
      static_cast<void>(turn);
      hold = claim(arena, bytes);
      if (hold) break;
    }
    if (!hold) throw std::bad_alloc();  // it raises instead of ending
  }
  *data = hold->data;
  return slot_tensor(arena, *hold, shape, dtype, &Arena::drop_held);
}

void register_arena(py::module_& m) {
  // Tensors may outlive every name of an arena, so Python never destroys one.
  py::class_<Arena, std::unique_ptr<Arena, py::nodelete>>(
      m, "Arena", py::metaclass(reinterpret_cast<PyObject*>(&PyType_Type)))
      .def_static(
          "create",
          [](std::size_t reserved, std::size_t max_bytes) -> Arena& {
            return made([&]() -> Arena& { return Arena::create(reserved, max_bytes); });
          },
          py::arg("reserved"), py::arg("max_bytes"), py::return_value_policy::reference)
      .def_static(
          "attach",
          [](int descriptor) -> Arena& {
            return made([&]() -> Arena& { return Arena::attach(descriptor); });
          },
          py::arg("descriptor"), py::return_value_policy::reference)
      .def_static("file_name", &Arena::file_name, py::arg("process"))
      .def_property_readonly("is_mine", &Arena::is_mine)
      .def_property_readonly("descriptor", &Arena::descriptor)
      .def_property_readonly("id", &Arena::id)
      .def(
          "contains",
          [](const Arena& arena, std::uintptr_t address) {
            return arena.contains(reinterpret_cast<const void*>(address));
          },
          py::arg("address"))
      .def("set_max_bytes", &Arena::set_max_bytes, py::arg("max_bytes"), Unlocked())
      .def("join", &Arena::join, Unlocked())
      .def("allocate", &allocate, py::arg("bytes"))
      .def("send", &send, py::arg("address"), py::arg("bytes"))
      .def("receive", &receive, py::arg("slot"), py::arg("generation"), py::arg("offset"),
           py::arg("bytes"))
      .def_property_readonly(
          "address",
          [](const Arena& arena) { return reinterpret_cast<std::uintptr_t>(arena.base()); })
      .def_property_readonly("first_slot", &Arena::first_slot)
      .def("end_of", &Arena::end_of, py::arg("slot"))
      .def_property_readonly("end_of_slots", &Arena::end_of_slots)
      .def("keep", &Arena::keep, py::arg("end"), Unlocked())
      .def_property_readonly("kept_until", &Arena::kept_until)
      .def("next_released", &next_released, py::arg("seconds"))
      .def("drop_taken", &drop_taken, py::arg("slots"))
      .def("wake", [](Arena& arena) { arena.released().wake(); })
      .def("has_unread_messages", &Arena::has_unread_messages)
      .def("count_wait", &Arena::count_wait)
      .def("sweep", &Arena::sweep_the_gone, Unlocked())
      .def_property_readonly("shortage", [](const Arena& arena) { return arena.stats().shortage; })
      .def(
          "set_idle_timeout",
          [](Arena& arena, double seconds) {
            arena.set_idle_timeout(std::chrono::milliseconds(static_cast<long>(1000 * seconds)));
          },
          py::arg("seconds"))
      .def("stats", &stats);
  py::class_<ArenaOutputs>(m, "ArenaOutputs",
                           py::metaclass(reinterpret_cast<PyObject*>(&PyType_Type)))
      .def(py::init<Arena&, py::object>(), py::arg("arena"), py::arg("wait"));
}

}  // namespace pinfeed::bindings
