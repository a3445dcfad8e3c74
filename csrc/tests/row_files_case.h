// Files of rows for tests, and batches of them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/row_files.h"
#include "tests/check.h"

namespace pinfeed::tests {

using runtime::Descriptor;
using runtime::FileStamp;
using runtime::ReadFailure;
using runtime::RowFile;
using runtime::RowFiles;
using runtime::RowRead;

inline constexpr std::size_t kRow = 3000;  // not a multiple of a page, or of a cache line
inline constexpr std::int64_t kHeader = 128;

// The byte at a position of a file; never 0.
inline std::byte byte_at(std::size_t file, std::int64_t offset) {
  return static_cast<std::byte>(1 + (offset * 7 + offset / 251 + static_cast<std::int64_t>(file)) %
                                        255);
}

// Files in a folder that is removed with the object.
class Folder {
 public:
  Folder() { CHECK(mkdtemp(path_.data()) != nullptr); }
  ~Folder() {
    for (const std::string& path : paths_) unlink(path.c_str());
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  RowFile add(std::int64_t size) {
    const std::size_t number = paths_.size();
    paths_.push_back(path_ + "/" + std::to_string(number));
    std::vector<std::byte> bytes(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) bytes[static_cast<std::size_t>(i)] = byte_at(number, i);
    const int fd = open(paths_.back().c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, bytes.data(), bytes.size()) == size);
    close(fd);
    return {paths_.back(), stamp(number)};
  }

  FileStamp stamp(std::size_t number) const {
    struct stat status{};
    CHECK(stat(path(number).c_str(), &status) == 0);
    return runtime::stamp_of(status);
  }

  const std::string& path(std::size_t number) const { return paths_[number]; }

  // Drops a file from the page cache. Pages that are being read stay, so all are read first.
  void cool(std::size_t number) const {
    const int fd = open(paths_[number].c_str(), O_RDONLY);
    std::vector<std::byte> bytes(std::size_t{1} << 20);
    while (::read(fd, bytes.data(), bytes.size()) > 0) {
    }
    fsync(fd);
#if !defined(__APPLE__)
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    close(fd);
  }

 private:
  std::string path_ = "/tmp/pinfeed-rows-XXXXXX";
  std::vector<std::string> paths_;
};

// A file that its owner has opened, and mapped at `mapped`.
inline RowFile opened(const std::string& path, const std::byte* mapped = nullptr) {
  const int fd = open(path.c_str(), O_RDONLY);
  return {path, {}, std::make_shared<const Descriptor>(Descriptor(fd)), mapped};
}

// Rows of the files, and memory for them.
class Batch {
 public:
  void add(std::size_t file, std::int64_t row, std::size_t bytes = kRow) {
    reads_.push_back(
        {file, kHeader + row * static_cast<std::int64_t>(kRow), bytes, nullptr, reads_.size()});
  }

  std::span<const RowRead> reads() {
    memory_.assign(reads_.size() * kRow, std::byte{0});
    for (std::size_t i = 0; i < reads_.size(); ++i) reads_[i].to = &memory_[i * kRow];
    return reads_;
  }

  bool is_right() const {
    bool same = true;
    for (const RowRead& read : reads_) same = same && is_row(read, read.to);
    return same;
  }

  static bool is_row(const RowRead& read, const std::byte* row) {
    for (std::size_t i = 0; i < read.bytes; ++i) {
      if (row[i] != byte_at(read.file, read.offset + static_cast<std::int64_t>(i))) return false;
    }
    return true;
  }

 private:
  std::vector<RowRead> reads_;
  std::vector<std::byte> memory_;
};

inline Batch random_batch(std::size_t files, std::int64_t rows, unsigned seed, int count = 256) {
  std::mt19937 random(seed);
  Batch batch;
  for (int i = 0; i < count; ++i) {
    batch.add(random() % files, static_cast<std::int64_t>(random()) % rows);
  }
  return batch;
}

inline bool reads_right(RowFiles& files, Batch batch, std::size_t threads = 2) {
  const auto failure = files.read(batch.reads(), threads);
  return !failure && batch.is_right();
}

// Reads until rows are found in memory.
inline bool becomes_hot(RowFiles& files, Batch batch) {
  for (int i = 0; i < 100 && !files.seems_hot(); ++i) {
    if (files.read(batch.reads(), 1)) return false;
  }
  return files.seems_hot();
}

// Whether mapped rows of files opened by path are right.
inline bool maps_right(RowFiles& files, Batch batch) {
  std::vector<const std::byte*> where;
  bool same = true;
  for (const RowRead& read : batch.reads()) {
    const std::byte* const beginning = files.map(read.file);
    if (beginning == nullptr) return false;
    where.push_back(beginning + read.offset);
    same = same && Batch::is_row(read, where.back());
  }
  return same && files.are_in_memory(where);
}

inline std::int64_t size_of(std::int64_t rows) {
  return kHeader + rows * static_cast<std::int64_t>(kRow);
}

}  // namespace pinfeed::tests
