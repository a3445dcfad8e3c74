#include "runtime/file_reads.h"

#include <cstring>

#include "runtime/buffer_pool.h"

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{8} << 20;  // it should stay in the cache
constexpr std::size_t kAlignment = 64;

}  // namespace

void FileReads::Staging::operator()(std::byte* memory) const {
  BufferPool::instance().release(memory);
}

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
  if (file_.ends.empty()) {
    read.offset = file_.offsets[0] + (data - memory_) + bytes.begin;
  } else {
    read.file = file_.ends.part_of(row);
    row -= file_.ends.first_row(read.file);
    read.offset = file_.offsets[read.file] + row * row_stride_;
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
  data_.resize(rows_.size());
  chunks_ = {0, rows_.size()};
  if (alike_) {
    is_mapped_ = find_rows();
    if (!is_mapped_) list_reads();
    return is_mapped_;
  }
  is_mapped_ = file_.files->find_mapped(reads_, data_.data());
  for (std::size_t i = 0; is_mapped_ && i < data_.size(); ++i) data_[i] += heads_[i];
  return is_mapped_;
}

bool FileReads::find_rows() {
  RowFiles& files = *file_.files;
  if (rows_.empty() || alike_->used == 0 || !files.may_be_mapped()) return false;
  const bool is_one = file_.ends.empty();
  if (!is_one) parts_.resize(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::size_t file = is_one ? 0 : file_.ends.part_of(rows_[i]);
    const std::int64_t row = rows_[i] - (is_one ? 0 : file_.ends.first_row(file));
    const std::int64_t offset = file_.offsets[file] + row * row_stride_;
    const std::byte* const mapped = files.mapped(file, offset + alike_->end);
    if (mapped == nullptr) return false;
    data_[i] = mapped + offset;
    if (!is_one) parts_[i] = file;
  }
  return files.are_in_memory(data_);
}

// Whether no byte of a mapped row was missing when it was read.
bool FileReads::are_rows_whole() const {
  if (parts_.empty()) return file_.files->is_whole(0);
  const auto bytes = static_cast<std::size_t>(alike_->end - alike_->begin);
  if (!file_.files->seem_unchanged(parts_, bytes * parts_.size())) return false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    // Where a file was cut short there are zeros now, from there to its end. So if the last byte of
    // the row is none, all of it was there. To ask each file would take as long as half the rows.
    const auto* const last = data_[i] + alike_->end - 1;
    if (*const_cast<const volatile std::byte*>(last) != std::byte{0}) continue;
    if (!file_.files->is_whole(parts_[i])) return false;
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
  staging_.reset(static_cast<std::byte*>(BufferPool::instance().acquire(most)));
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    reads_[i].to = staging_.get() + places[i];
    data_[i] = reads_[i].to + heads_[i];
  }
}

void FileReads::prefetch() {
  list_reads();
  file_.files->prefetch(reads_);
}

void FileReads::read_chunk(std::size_t number, std::size_t threads) {
  // With the first chunk the others are asked for.
  if (number == 0 && chunks() > 1 && !file_.files->seems_hot()) file_.files->request(reads_);
  read(chunks_[number], chunks_[number + 1], threads);
}

void FileReads::read(std::size_t begin, std::size_t end, std::size_t threads) {
  const auto failure = file_.files->read(std::span(reads_).subspan(begin, end - begin), threads);
  if (failure) fail(*failure);
}

void FileReads::check() {
  if (alike_) {
    if (are_rows_whole()) return;
    list_reads();
    fail(file_.files->explain_change(reads_));
  }
  if (const auto failure = file_.files->check_mapped(reads_)) fail(*failure);
}

void FileReads::fail(const ReadFailure& failure) const {
  const RowRead& read = failure.read;
  const std::string end = std::to_string(read.offset + static_cast<std::int64_t>(read.bytes));
  const std::string row = "row " + std::to_string(rows_[read.sample]);
  std::string message = file_.files->file(read.file).path + ": ";
  switch (failure.reason) {
    case ReadFailure::Reason::cut_short:
      message += "the file was cut short: it has " + std::to_string(failure.size) + " bytes, ";
      if (read.offset + static_cast<std::int64_t>(read.bytes) > failure.size) {
        message += row + " ends at byte " + end;
      } else if (const std::int64_t had = file_.files->file(read.file).marks.size; had > 0) {
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
      throw FileError(message, failure.error);
  }
  throw FileError(message, 0);
}

}  // namespace pinfeed::runtime
