#include "runtime/file_reads.h"

#include <cstring>

#include "runtime/buffer_pool.h"

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{8} << 20;  // fits the cache
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kProbes = 16;  // samples to check to decide whether all are in memory

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
  const auto [file, offset] = place_of(row, data - memory_ + bytes.begin);
  reads_.push_back({.file = file,
                    .offset = offset,
                    .bytes = static_cast<std::size_t>(bytes.end - bytes.begin),
                    .to = nullptr,
                    .sample = reads_.size()});
  rows_.push_back(row - file_.ends.first_row(file));
  heads_.push_back(static_cast<std::size_t>(-bytes.begin));
}

void FileReads::add_rows(std::span<const std::int64_t> rows, const SampleBytes& bytes) {
  rows_.assign(rows.begin(), rows.end());
  common_ = bytes;
}

// Listing the reads takes longer than finding mapped rows.
void FileReads::list_reads() {
  if (!common_) return;
  const SampleBytes bytes = *common_;
  common_.reset();
  const std::vector<std::int64_t> rows = std::exchange(rows_, {});
  reserve(rows.size());
  for (const std::int64_t row : rows) add(row, memory_ + row * row_stride_, bytes);
}

bool FileReads::find_mapped() {
  require_unchanged();
  data_.resize(count());
  chunks_ = {0, count()};
  is_mapped_ = file_.files->seems_hot() && look_at_samples();
  if (!is_mapped_) list_reads();
  return is_mapped_;
}

void FileReads::require_unchanged() {
  if (file_.files->file(0).opened != nullptr) return;
  std::vector<bool> is_among(file_.offsets.size());
  std::vector<std::size_t> files;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count(); ++i) {
    const std::size_t file = place_of(i).first;
    bytes += static_cast<std::size_t>(row_stride_);
    if (!is_among[file]) files.push_back(file);
    is_among[file] = true;
  }
  if (const auto change = file_.files->find_change(files, bytes)) fail(*change);
}

// The file of a sample, and the offset of the sample's lowest byte in that file.
std::pair<std::size_t, std::int64_t> FileReads::place_of(std::size_t sample) const {
  if (!common_) return {reads_[sample].file, reads_[sample].offset};
  return place_of(rows_[sample], rows_[sample] * row_stride_ + common_->begin);
}

// The file of a row, and the offset of a byte in that file. `distance`: of the byte from the
// array's first item.
std::pair<std::size_t, std::int64_t> FileReads::place_of(std::int64_t row,
                                                         std::int64_t distance) const {
  const std::size_t file = file_.ends.part_of(row);
  return {file, file_.offsets[file] + distance - file_.ends.first_row(file) * row_stride_};
}

bool FileReads::look_at_samples() {
  std::vector<const std::byte*> probes;
  const std::size_t step = std::max<std::size_t>(count() / kProbes, 1);
  for (std::size_t i = 0; i < count(); ++i) {
    const auto [file, offset] = place_of(i);
    const std::byte* const beginning = file_.files->map(file);
    if (beginning == nullptr) return false;
    const std::byte* const lowest = beginning + offset;
    data_[i] = lowest + (common_ ? static_cast<std::size_t>(-common_->begin) : heads_[i]);
    const bool has_bytes = common_ ? common_->used > 0 : reads_[i].bytes > 0;
    if (i % step == 0 && has_bytes) probes.push_back(lowest);
  }
  return file_.files->are_in_memory(probes);
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
  std::size_t used = 0, largest = 0;
  std::vector<std::size_t> places(reads_.size());
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const std::size_t bytes = (reads_[i].bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (!whole && used > 0 && used + bytes > kStagingBytes) {
      chunks_.push_back(i);
      used = 0;
    }
    places[i] = used;
    used += bytes;
    largest = std::max(largest, used);
  }
  chunks_.push_back(reads_.size());
  staging_.reset(static_cast<std::byte*>(BufferPool::instance().acquire(largest)));
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    reads_[i].to = staging_.get() + places[i];
    data_[i] = reads_[i].to + heads_[i];
  }
}

void FileReads::read_chunk(std::size_t number, std::size_t threads) {
  // The first chunk requests the others too.
  if (number == 0 && chunks() > 1 && !file_.files->seems_hot()) file_.files->request(reads_);
  read(chunks_[number], chunks_[number + 1], threads);
}

void FileReads::read(std::size_t begin, std::size_t end, std::size_t threads) {
  const auto failure = file_.files->read(std::span(reads_).subspan(begin, end - begin), threads);
  if (failure) fail(*failure);
}

void FileReads::fail(const ReadFailure& failure) const {
  const RowRead& read = failure.read;
  const RowFile& file = file_.files->file(read.file);
  std::string row, end;
  if (read.bytes > 0) {
    row = "row " + std::to_string(rows_[read.sample]);
    end = std::to_string(read.offset + static_cast<std::int64_t>(read.bytes));
  }
  if (failure.reason == ReadFailure::Reason::system) {
    if (!row.empty()) row += " (bytes " + std::to_string(read.offset) + " to " + end + ") ";
    throw FileError(file.path + ": " + row + "can't be read: " + std::strerror(failure.error),
                    failure.error);
  }
  if (failure.reason == ReadFailure::Reason::replaced) {
    throw FileError(
        file.path + ": the file was replaced or changed after it was opened; open it again", 0);
  }
  throw FileError(
      file.path + ": the file was cut short: it has " + std::to_string(failure.size) + " bytes, " +
          (row.empty() ? "and had " + std::to_string(file.stamp.size) + " when it was opened"
                       : "but " + row + " ends at byte " + end) +
          "; write or download it again",
      0);
}

}  // namespace pinfeed::runtime
