#include "bindings/python/file_array.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/options.h"
#include "bindings/python/samples.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using runtime::FileStamp;
using runtime::RowFile;
using runtime::RowFiles;

// In the system's encoding: not all names are UTF-8.
std::string system_path(const py::str& path) {
  const auto bytes = py::reinterpret_steal<py::bytes>(PyUnicode_EncodeFSDefault(path.ptr()));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

void raise_os_error(const runtime::FileError& error) {
  const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(error.what()));
  if (!text) return;
  // With an errno, Python raises the subclass of OSError, such as FileNotFoundError.
  const int number = error.error_number;
  PyErr_SetObject(PyExc_OSError,
                  number == 0 ? text.ptr() : py::object(py::make_tuple(number, text)).ptr());
}

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 62;

FileArray open_one(py::array array, const py::str& path, int fd, std::int64_t offset) {
  auto opened = std::make_shared<const runtime::Descriptor>(runtime::Descriptor(fd));  // closes fd
  const FileStamp stamp = runtime::stamp_of(fd);
  // A view without items can begin anywhere.
  if (array.size() > 0 && (offset < 0 || offset > stamp.size)) {
    throw wrong_value({"FileArray"}, "an offset in the file", std::to_string(offset));
  }
  // of any dtype: samples can be taken from arrays whose dtype torch lacks
  const std::byte* const mapped = static_cast<const std::byte*>(array.data()) - offset;
  std::vector<RowFile> files{{system_path(path), stamp, std::move(opened), mapped}};
  return {std::move(array), {std::make_shared<RowFiles>(std::move(files)), {offset}, {}}};
}

FileArray open_parts(py::object array, const std::vector<py::str>& paths,
                     const std::vector<std::array<std::int64_t, 3>>& stamps,
                     std::vector<std::int64_t> offsets, std::vector<std::int64_t> ends) {
  if (paths.empty() || stamps.size() != paths.size() || offsets.size() != paths.size() ||
      ends.size() != paths.size()) {
    throw wrong_value({"FileArray"}, "expected a file stamp, an offset and an end for each path");
  }
  const ArrayView view = view_array(array, Subject{"FileArray"});
  const std::int64_t row = view.axes() == 0 ? 0 : view.stride(0);
  if (view.axes() == 0 || view.shape[0] != ends.back() || row < 0) {
    throw wrong_value({"FileArray"}, "expected an array of all rows");
  }
  const std::vector<std::int64_t> strides = view.byte_strides();
  const runtime::SampleBytes bytes(view.shape.subspan(1), std::span(strides).subspan(1),
                                   view.dtype.item_size());
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::int64_t rows = ends[i] - begin, first = offsets[i], size = stamps[i][1];
    begin = ends[i];
    if (rows < 0 || first < 0 || first > kMaxBytes || bytes.begin < 0 ||
        (rows > 0 && static_cast<__int128>(rows - 1) * row + first + bytes.end > size)) {
      throw wrong_value({"FileArray"}, "part " + std::to_string(i) + " extends beyond its file");
    }
  }
  std::vector<RowFile> files;
  files.reserve(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto [inode, size, modified] = stamps[i];
    files.push_back(
        {system_path(paths[i]), FileStamp{static_cast<std::uint64_t>(inode), size, modified}});
  }
  return {std::move(array),
          {std::make_shared<RowFiles>(std::move(files)), std::move(offsets),
           runtime::PartEnds(std::move(ends))}};
}

}  // namespace

void register_file_array(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const runtime::FileError& error) {
      raise_os_error(error);
    }
  });
  bind_class<FileArray>(m, "FileArray")
      .def(py::init(&open_one), py::arg("array"), py::arg("path"), py::arg("fd"), py::arg("offset"))
      .def_static("of_parts", &open_parts, py::arg("array"), py::arg("paths"), py::arg("stamps"),
                  py::arg("offsets"), py::arg("ends"));
}

}  // namespace pinfeed::bindings
