// Files by path: opens few at a time, and checks that each is still the same file.
#pragma once

#include <sys/stat.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pinfeed::runtime {

// Bytes of a file, and where to put them.
struct RowRead {
  std::size_t file;
  std::int64_t offset;
  std::size_t bytes;
  std::byte* to;
  std::size_t sample;  // the caller's number for it
};

// Why bytes could not be read.
struct ReadFailure {
  enum class Reason : std::uint8_t { system, cut_short, replaced };
  Reason reason;
  int error;          // errno, for `system`
  std::int64_t size;  // of the file, for `cut_short`
  RowRead read;       // the failed read; no bytes: its file failed
};

// The stamp of a file, which changes if the file is modified or replaced.
struct FileStamp {
  std::uint64_t inode;
  std::int64_t size;
  std::int64_t modified_ns;

  bool operator==(const FileStamp&) const = default;
};

FileStamp stamp_of(const struct stat& status);
FileStamp stamp_of(int fd);  // zeros if the system can't tell

bool is_out_of_files(int error);  // EMFILE or ENFILE

// An open file, or none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  int fd() const { return fd_; }  // negative: none

  // preadv() without waiting for the disk. Negative if the page cache has nothing there; errno is
  // EOPNOTSUPP if the system, or the file system, can't tell.
  ssize_t read_cached(const iovec* parts, int count, std::int64_t offset) const noexcept;

  // Requests bytes that will be read soon, without waiting.
  void request(std::int64_t offset, std::size_t bytes) const noexcept;

 private:
  int fd_ = -1;
};

struct RowFile {
  std::string path;
  FileStamp stamp;
  // Of a file that its owner has opened and mapped: the owner may write to it, so only its size
  // must not change. Null: the file is opened by its path.
  std::shared_ptr<const Descriptor> opened{};
  const std::byte* mapped = nullptr;  // its first byte
};

class OpenFiles {
 public:
  using Open = std::shared_ptr<const Descriptor>;

  explicit OpenFiles(std::vector<RowFile> files);
  ~OpenFiles();
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  std::size_t count() const { return files_.size(); }
  const RowFile& operator[](std::size_t file) const { return files_[file]; }

  // The maximum number of files that this process keeps open for reading rows.
  static std::size_t max_open() noexcept;

  // Null, with the errno in `error`, if the file can't be opened.
  Open open(std::size_t file, int& error) noexcept;

  // Whether a file opened by its path has changed since its stamp was taken, and how. Checks the
  // path, because an open descriptor would not show that the file was replaced.
  std::optional<ReadFailure> change_of(std::size_t file) const noexcept;

 private:
  struct Kept;  // an open file and its owner

  // Files of all OpenFiles that stay open until others replace them; guarded as open_ is.
  static std::deque<Kept>& kept();

  std::vector<RowFile> files_;
  std::vector<std::weak_ptr<const Descriptor>> open_;  // guarded by one mutex for all OpenFiles
};

}  // namespace pinfeed::runtime
