#include "bindings/python/file_array.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "bindings/python/module.h"
#include "runtime/buffer_pool.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using runtime::FileMarks;
using runtime::ReadFailure;
using runtime::RowFile;
using runtime::RowFiles;
using runtime::RowRead;

constexpr std::size_t kStagingBytes = std::size_t{8} << 20;  // it should stay in the cache
constexpr std::size_t kAlignment = 64;

// As the system has it: not all names are UTF-8.
std::string system_path(const py::str& path) {
  const auto bytes = py::reinterpret_steal<py::bytes>(PyUnicode_EncodeFSDefault(path.ptr()));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

[[noreturn]] void raise_os_error(const std::string& message, int error = 0) {
  const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(message.c_str()));
  if (!text) throw py::error_already_set();
  // With an errno, Python makes it a FileNotFoundError where it is one.
  PyErr_SetObject(PyExc_OSError,
                  error == 0 ? text.ptr() : py::object(py::make_tuple(error, text)).ptr());
  throw py::error_already_set();
}

// Goes without the GIL: to unmap gigabytes takes a while.
struct FilesDeleter {
  void operator()(RowFiles* files) const {
    const py::gil_scoped_release unlocked;
    delete files;
  }
};

std::shared_ptr<RowFiles> shared_files(std::vector<RowFile> files, runtime::Descriptor only,
                                       std::int64_t mapping_budget) {
  return {new RowFiles(std::move(files), std::move(only), mapping_budget), FilesDeleter()};
}

FileArray open_one(py::object array, const py::str& path, int fd, std::int64_t offset,
                   std::int64_t mapping_budget) {
  runtime::Descriptor file(fd);  // closed from now on, whatever fails below
  std::vector<RowFile> files{{system_path(path), {}}};
  auto opened = shared_files(std::move(files), std::move(file), mapping_budget);
  const std::int64_t size = opened->size(0);
  return {std::move(array), std::move(opened), {offset}, {}, size};
}

FileArray open_parts(py::object array, const std::vector<py::str>& paths,
                     const std::vector<std::array<std::int64_t, 3>>& marks,
                     std::vector<std::int64_t> offsets, std::vector<std::int64_t> ends,
                     std::int64_t mapping_budget) {
  if (paths.empty() || marks.size() != paths.size() || offsets.size() != paths.size() ||
      ends.size() != paths.size()) {
    throw py::value_error("FileArray: expected marks, an offset and an end for each path");
  }
  std::vector<RowFile> files;
  files.reserve(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto [inode, size, modified] = marks[i];
    files.push_back(
        {system_path(paths[i]), FileMarks{static_cast<std::uint64_t>(inode), size, modified}});
  }
  return {std::move(array), shared_files(std::move(files), runtime::Descriptor(), mapping_budget),
          std::move(offsets), PartEnds(std::move(ends))};
}

}  // namespace

const FileArray* FileArray::in(py::handle object) {
  return object && py::isinstance<FileArray>(object) ? object.cast<const FileArray*>() : nullptr;
}

void FileReads::Staging::operator()(std::byte* memory) const {
  runtime::BufferPool::instance().release(memory);
}

FileReads::FileReads(const FileArray& array, const ArrayView& view)
    : array_(array), memory_(view.data), row_stride_(view.axes() > 0 ? view.stride(0) : 0) {}

SampleBytes::SampleBytes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                         std::size_t item_bytes)
    : end(static_cast<std::int64_t>(item_bytes)), used(end) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t far = (shape[axis] - 1) * strides[axis];
    (far < 0 ? begin : end) += far;
    used *= shape[axis];
  }
  if (used == 0) begin = end = 0;
}

void FileReads::reserve(std::size_t samples) {
  reads_.reserve(samples);
  rows_.reserve(samples);
  heads_.reserve(samples);
}

void FileReads::add(std::int64_t row, const std::byte* data, const SampleBytes& bytes) {
  RowRead read{.file = 0,
               .offset = 0,
               .bytes = static_cast<std::size_t>(bytes.end - bytes.begin),
               .to = nullptr,
               .sample = reads_.size()};
  if (array_.ends.empty()) {
    read.offset = array_.offsets[0] + (data - memory_) + bytes.begin;
  } else {
    read.file = array_.ends.part_of(row);
    row -= array_.ends.first_row(read.file);
    read.offset = array_.offsets[read.file] + row * row_stride_;
  }
  reads_.push_back(read);
  rows_.push_back(row);
  heads_.push_back(static_cast<std::size_t>(-bytes.begin));
}

void FileReads::add_rows(std::span<const std::int64_t> rows, const SampleBytes& bytes) {
  rows_.assign(rows.begin(), rows.end());
  alike_ = bytes;
}

// Listing the reads takes longer than finding mapped rows.
void FileReads::list_reads() {
  if (!alike_) return;
  const SampleBytes bytes = *alike_;
  alike_.reset();
  const std::vector<std::int64_t> rows = std::exchange(rows_, {});
  reserve(rows.size());
  for (const std::int64_t row : rows) add(row, memory_ + row * row_stride_, bytes);
}

bool FileReads::find_mapped() {
  const py::gil_scoped_release unlocked;
  data_.resize(rows_.size());
  chunks_ = {0, rows_.size()};
  if (alike_) {
    mapped_ = find_rows();
    if (!mapped_) list_reads();
    return mapped_;
  }
  mapped_ = array_.files->find_mapped(reads_, data_.data());
  for (std::size_t i = 0; mapped_ && i < data_.size(); ++i) data_[i] += heads_[i];
  return mapped_;
}

bool FileReads::find_rows() {
  RowFiles& files = *array_.files;
  if (rows_.empty() || alike_->used == 0 || !files.may_be_mapped()) return false;
  const bool is_one = array_.ends.empty();
  if (!is_one) parts_.resize(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::size_t file = is_one ? 0 : array_.ends.part_of(rows_[i]);
    const std::int64_t row = rows_[i] - (is_one ? 0 : array_.ends.first_row(file));
    const std::int64_t offset = array_.offsets[file] + row * row_stride_;
    const std::byte* const mapped = files.mapped(file, offset + alike_->end);
    if (mapped == nullptr) return false;
    data_[i] = mapped + offset;
    if (!is_one) parts_[i] = file;
  }
  return files.are_in_memory(data_);
}

// Whether no byte of a mapped row was missing when it was read.
bool FileReads::are_rows_whole() const {
  if (parts_.empty()) return array_.files->is_whole(0);
  const auto bytes = static_cast<std::size_t>(alike_->end - alike_->begin);
  if (!array_.files->seem_unchanged(parts_, bytes * parts_.size())) return false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    // Where a file was cut short there are zeros now, from there to its end. So if the last byte of
    // the row is none, all of it was there. To ask each file would take as long as half the rows.
    const auto* const last = data_[i] + alike_->end - 1;
    if (*const_cast<const volatile std::byte*>(last) != std::byte{0}) continue;
    if (!array_.files->is_whole(parts_[i])) return false;
  }
  return true;
}

void FileReads::read_to(std::byte* out, std::size_t threads) {
  for (RowRead& read : reads_) {
    read.to = out;
    out += read.bytes;
  }
  read(0, reads_.size(), threads);
}

void FileReads::plan(bool whole, std::size_t threads) {
  if (find_mapped()) return;
  stage(whole);
  if (whole) read(0, reads_.size(), threads);
  is_read_ = whole;
}

void FileReads::stage(bool whole) {
  const py::gil_scoped_release unlocked;
  chunks_ = {0};
  std::size_t used = 0, most = 0;
  std::vector<std::size_t> places(reads_.size());
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const std::size_t bytes = (reads_[i].bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (!whole && used > 0 && used + bytes > kStagingBytes) {
      chunks_.push_back(i);
      used = 0;
    }
    places[i] = used;
    used += bytes;
    most = std::max(most, used);
  }
  chunks_.push_back(reads_.size());
  staging_.reset(static_cast<std::byte*>(runtime::BufferPool::instance().acquire(most)));
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    reads_[i].to = staging_.get() + places[i];
    data_[i] = reads_[i].to + heads_[i];
  }
}

void FileReads::prefetch() {
  const py::gil_scoped_release unlocked;
  list_reads();
  array_.files->prefetch(reads_);
}

void FileReads::request() {
  if (mapped_ || is_read_ || chunks_.size() == 2 || array_.files->seems_hot()) return;
  const py::gil_scoped_release unlocked;
  array_.files->request(reads_);
}

void FileReads::read(std::size_t begin, std::size_t end, std::size_t threads) {
  std::optional<ReadFailure> failure;
  {
    const py::gil_scoped_release unlocked;
    failure = array_.files->read(std::span(reads_).subspan(begin, end - begin), threads);
  }
  if (failure) fail(*failure);
}

void FileReads::check() {
  std::optional<ReadFailure> failure;
  {
    const py::gil_scoped_release unlocked;  // it asks for marks of files, which may be far away
    const bool asked = alike_.has_value();
    if (asked && are_rows_whole()) return;
    list_reads();
    if (asked) {
      failure = array_.files->explain_change(reads_);
    } else {
      failure = array_.files->check_mapped(reads_);
    }
  }
  if (failure) fail(*failure);
}

void FileReads::fail(const ReadFailure& failure) const {
  const RowRead& read = failure.read;
  const std::string end = std::to_string(read.offset + static_cast<std::int64_t>(read.bytes));
  const std::string row = "row " + std::to_string(rows_[read.sample]);
  std::string message = array_.files->file(read.file).path + ": ";
  switch (failure.reason) {
    case ReadFailure::Reason::cut_short:
      message += "the file was cut short: it has " + std::to_string(failure.size) + " bytes, ";
      if (read.offset + static_cast<std::int64_t>(read.bytes) > failure.size) {
        message += row + " ends at byte " + end;
      } else if (const std::int64_t had = array_.files->file(read.file).marks.size; had > 0) {
        message += "and had " + std::to_string(had) + " when it was opened";
      } else {
        message += "fewer than when it was opened";
      }
      break;
    case ReadFailure::Reason::replaced:
      message += "the file was replaced or changed after it was opened; " + row +
                 " can't be read any more";
      break;
    case ReadFailure::Reason::changed:
      message += "the file changed while " + row + " was read";
      break;
    case ReadFailure::Reason::system:
      message += row + " (bytes " + std::to_string(read.offset) + " to " + end +
                 ") can't be read: " + std::strerror(failure.error);
      raise_os_error(message, failure.error);
  }
  raise_os_error(message);
}

void register_file_array(py::module_& m) {
  // A plain type: there is nothing static to assign to.
  py::class_<FileArray>(m, "FileArray", py::metaclass(reinterpret_cast<PyObject*>(&PyType_Type)))
      .def(py::init(&open_one), py::arg("array"), py::arg("path"), py::arg("fd"), py::arg("offset"),
           py::arg("mapping_budget"))
      .def_static("of_parts", &open_parts, py::arg("array"), py::arg("paths"), py::arg("marks"),
                  py::arg("offsets"), py::arg("ends"), py::arg("mapping_budget"));
}

}  // namespace pinfeed::bindings
