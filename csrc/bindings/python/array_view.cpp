#include "bindings/python/array_view.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "bindings/python/imported.h"
#include "bindings/python/torch_exchange.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

static_assert(sizeof(py::ssize_t) == sizeof(std::int64_t), "pinfeed is for 64-bit machines");

std::string type_name(py::handle object) {
  return py::str(py::type::handle_of(object).attr("__name__"));
}

// By NumPy's letter for it.
std::optional<ScalarKind> kind_of(char letter) {
  switch (letter) {
    case 'b':
      return ScalarKind::boolean;
    case 'u':
      return ScalarKind::unsigned_int;
    case 'i':
      return ScalarKind::signed_int;
    case 'f':
      return ScalarKind::floating;
    case 'c':
      return ScalarKind::complex;
    default:
      return std::nullopt;
  }
}

// How to convert an array of an unsupported dtype to numbers.
std::string hint_for(const py::dtype& dtype) {
  switch (dtype.kind()) {
    case 'V':
      if (dtype.has_fields()) {
        return "make an entry of each of its fields: {name: a[name] for name in a.dtype.names}";
      }
      // Types of ml_dtypes: NumPy's own structured and raw types have no numbers.
      return dtype.attr("isbuiltin").cast<int>() == 2 ? "convert with .astype(np.float32)" : "";
    case 'M':
    case 'm':
      return ".view(np.int64) returns its numbers, -2**63 for NaT";
    case 'S':
    case 'U':
    case 'T':
      return "RaggedArray.from_strings takes strings for a dataset, and Keep() leaves lists of "
             "them, "
             ".tolist(), as they are";
    case 'O':
      return "np.array(a.tolist()) has the dtype of its items, if they are numbers";
    default:
      return "";
  }
}

std::string text_of(const py::dtype& dtype) { return "dtype " + std::string(py::str(dtype)); }

// The kind of numbers in this machine's byte order.
ScalarKind number_kind(const py::dtype& dtype, const Subject& subject) {
  const std::optional<ScalarKind> kind = kind_of(dtype.kind());
  if (!kind) throw wrong_type(subject, "a numeric or bool dtype", text_of(dtype), hint_for(dtype));
  if (dtype.byteorder() == '>') {
    const py::object native = dtype.attr("newbyteorder")("=").attr("name");
    throw wrong_type(
        subject, "the machine's byte order", text_of(dtype),
        "convert with a.astype(a.dtype.newbyteorder('=')), or, without reading a whole file "
        "into memory, with write_array(path, a, dtype=" +
            std::string(py::repr(native)) + ")");
  }
  return *kind;
}

DType ndarray_dtype(const py::array& array, const Subject& subject) {
  const py::dtype dtype = array.dtype();
  const ScalarKind kind = number_kind(dtype, subject);
  if (const auto type = kernels::find_scalar(kind, static_cast<std::size_t>(dtype.itemsize()))) {
    return {*type};
  }
  const bool real = kind == ScalarKind::floating;
  throw wrong_type(
      subject, "a dtype that torch has", text_of(dtype),
      real ? "convert with .astype(np.float64)" : "convert with .astype(np.complex128)");
}

// Types of NumPy and torch that consist of their values only.
bool is_plain(PyTypeObject* type) {
  static constexpr std::size_t kTypes = 6;
  using Types = std::array<PyObject*, kTypes>;
  const Types& plain = once([] {
    return Types{imported("numpy", "ndarray").release().ptr(),
                 imported("numpy", "memmap").release().ptr(),
                 imported("numpy", "matrix").release().ptr(),
                 imported("numpy", "recarray").release().ptr(),
                 imported("torch", "Tensor").release().ptr(),
                 imported("torch.nn", "Parameter").release().ptr()};
  });
  return std::ranges::find(plain, reinterpret_cast<PyObject*>(type)) != plain.end();
}

// Conversion of another class could lose a mask, a unit or other state.
void require_plain_array(py::handle array, const Subject& subject) {
  if (is_plain(Py_TYPE(array.ptr()))) return;
  const py::handle masked = once([] { return imported("numpy.ma", "MaskedArray"); });
  if (py::isinstance(array, masked)) {
    throw wrong_type(subject, "an array without a mask", "one with a mask, which would be lost",
                     "pass .filled(value), or .data and .mask as two arrays");
  }
  throw wrong_type(subject, "a plain NumPy array", type_name(array),
                   "np.asarray(a) returns the values only");
}

// Conversion of another tensor class could lose its attributes.
void require_plain_tensor(py::handle tensor, const Subject& subject) {
  if (is_plain(Py_TYPE(tensor.ptr()))) return;
  const py::object attributes = py::getattr(tensor, "__dict__", py::dict());
  if (py::len(attributes) == 0) return;
  throw wrong_type(
      subject, "a plain tensor",
      type_name(tensor) + " with " + py::str(", ").attr("join")(attributes).cast<std::string>(),
      py::hasattr(tensor, "to_tensor") ? ".to_tensor(value) fills it"  // a MaskedTensor
                                       : ".as_subclass(torch.Tensor) returns the values only");
}

ArrayView view_ndarray(const py::array& array, const Subject& subject) {
  require_plain_array(array, subject);
  return {
      .data = static_cast<std::byte*>(const_cast<void*>(array.data())),
      .dtype = ndarray_dtype(array, subject),
      .shape = {reinterpret_cast<const std::int64_t*>(array.shape()),
                static_cast<std::size_t>(array.ndim())},
      .is_tensor = false,
      .writable = array.writeable(),
      .strides_ = reinterpret_cast<const std::int64_t*>(array.strides()),
      .stride_unit_ = 1,
  };
}

bool is_true(PyObject* result) {
  const auto held = py::reinterpret_steal<py::object>(result);
  if (!held) throw py::error_already_set();
  return result == Py_True;
}

bool call_is_true(py::handle tensor, PyObject* method) {
  PyObject* arguments[] = {tensor.ptr()};
  return is_true(PyObject_VectorcallMethod(method, arguments, 1, nullptr));
}

// A pending conjugation or negation is a flag of the tensor.
void require_values_in_memory(py::handle object, bool is_complex, const Subject& subject) {
  PyObject* const is_neg = once([] { return PyUnicode_InternFromString("is_neg"); });
  PyObject* const is_conj = once([] { return PyUnicode_InternFromString("is_conj"); });
  if (call_is_true(object, is_neg) || (is_complex && call_is_true(object, is_conj))) {
    throw wrong_type(subject, "a tensor whose values are in memory",
                     "a lazily conjugated or negated one",
                     "call .resolve_conj().resolve_neg() first");
  }
}

// State of a tensor beyond its memory. Integer tensors have none, and every batch checks hundreds.
void require_plain_values(py::handle object, DType dtype, const Subject& subject) {
  PyObject* const requires_grad = once([] { return PyUnicode_InternFromString("requires_grad"); });
  const bool is_complex = dtype.kind() == ScalarKind::complex;
  if (!is_complex && !dtype.is_floating()) return;
  if (is_true(PyObject_GetAttr(object.ptr(), requires_grad))) {
    throw wrong_type(subject, "a tensor without gradients", "one with requires_grad=True",
                     "call .detach() first");
  }
  require_values_in_memory(object, is_complex, subject);
}

dlpack::Tensor look_at_cpu_tensor(py::handle object, const Subject& subject) {
  const auto elsewhere = [&] {
    const std::string device = py::str(object.attr("device"));
    return wrong_type(subject, "a tensor on the CPU", "one on " + device,
                      "move it with .cpu() first");
  };
  dlpack::Tensor tensor;
  try {
    tensor = look_at_tensor(object);
  } catch (py::error_already_set& error) {
    const auto is = [&](const char* kind) {
      return is_true(PyObject_GetAttrString(object.ptr(), kind));
    };
    if (is("is_nested")) {
      throw wrong_type(subject, "a dense tensor", "a nested one",
                       "x.unbind() returns its parts, and RaggedArray.from_sequences takes them");
    }
    if (is("is_quantized")) {
      throw wrong_type(subject, "a dense tensor", "a quantized one", "call .dequantize() first");
    }
    const std::string layout = py::str(object.attr("layout"));
    if (layout != "torch.strided") {
      throw wrong_type(subject, "a dense tensor", "one of " + layout, "call .to_dense() first");
    }
    if (!is("is_cpu")) throw elsewhere();
    const std::string reason = py::str(error.value());  // torch appends a C++ stack to some
    throw wrong_type(subject,
                     "expected a dense tensor on the CPU: " + reason.substr(0, reason.find('\n')));
  }
  if (!tensor.on_cpu()) throw elsewhere();
  return tensor;
}

// Programs begin here, and nothing is mapped below.
constexpr std::uintptr_t kFirstMappedAddress = std::uintptr_t{1} << 22;

ArrayView view_tensor(py::handle object, const Subject& subject) {
  const dlpack::Tensor tensor = look_at_cpu_tensor(object, subject);
  require_plain_tensor(object, subject);
  const std::optional<DType> found = dtype_of(tensor.type);
  if (!found) throw wrong_type(subject, "a numeric or bool dtype", py::str(object.attr("dtype")));
  const DType dtype = *found;
  const std::span<const std::int64_t> shape{tensor.shape, static_cast<std::size_t>(tensor.axes)};
  // A view of a tensor without memory has its offset as the address.
  if (reinterpret_cast<std::uintptr_t>(tensor.data) < kFirstMappedAddress &&
      std::ranges::find(shape, 0) == shape.end()) {
    throw wrong_type(subject, "a tensor with memory of its own",
                     "one without (fake, wrapped, or its storage was freed)");
  }
  require_plain_values(object, dtype, subject);
  return {
      .data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
      .dtype = dtype,
      .shape = shape,
      .is_tensor = true,
      .writable = true,
      .strides_ = tensor.strides,
      .stride_unit_ = static_cast<std::int64_t>(dtype.item_size()),
  };
}

Problem not_an_array(py::handle object, const Subject& subject) {
  const bool is_list = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
  return wrong_type(subject, "a NumPy array or a torch tensor", type_name(object),
                    is_list ? "np.asarray(x) converts it" : "");
}

// A name may have a path in it, and not all paths are UTF-8.
std::string printable(const py::str& name) {
  const auto bytes = py::reinterpret_steal<py::bytes>(
      PyUnicode_AsEncodedString(name.ptr(), "utf-8", "backslashreplace"));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

// Accepts dtypes that torch lacks, and tensors with gradients, which samples may have.
void check_array(py::handle object, const py::str& given_name) {
  const std::string name = printable(given_name);
  const Subject subject{name};
  if (py::isinstance<py::array>(object)) {
    require_plain_array(object, subject);
    number_kind(py::reinterpret_borrow<py::array>(object).dtype(), subject);
  } else if (is_tensor(object)) {
    look_at_cpu_tensor(object, subject);
    require_plain_tensor(object, subject);
    require_values_in_memory(object, true, subject);
  } else {
    throw not_an_array(object, subject);
  }
}

// Accepts arrays of any dtype.
void check_plain_array(py::handle array, const py::str& given_name) {
  const std::string name = printable(given_name);
  is_tensor(array) ? require_plain_tensor(array, {name}) : require_plain_array(array, {name});
}

}  // namespace

std::int64_t ArrayView::items() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

bool ArrayView::contiguous() const {
  const auto item = static_cast<std::int64_t>(dtype.item_size());
  return arrays::has_strides(shape, byte_strides(), arrays::contiguous_strides(shape, item));
}

Shape ArrayView::byte_strides() const {
  Shape strides(axes());
  for (std::size_t i = 0; i < axes(); ++i) strides[i] = stride(i);
  return strides;
}

ArrayView view_array(py::handle object, const Subject& subject) {
  if (py::isinstance<py::array>(object)) {
    return view_ndarray(py::reinterpret_borrow<py::array>(object), subject);
  }
  if (is_tensor(object)) return view_tensor(object, subject);
  throw not_an_array(object, subject);
}

void register_array_view(py::module_& m) {
  m.def("check_array", &check_array, py::arg("array"), py::arg("name"));
  m.def("check_plain_array", &check_plain_array, py::arg("array"), py::arg("name"));
}

}  // namespace pinfeed::bindings
