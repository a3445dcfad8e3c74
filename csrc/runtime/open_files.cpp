#include "runtime/open_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kMaxOpen = 256;  // files, or a quarter of the process's limit

using Reason = ReadFailure::Reason;

// One for all OpenFiles, because a fork could leave a mutex per object locked in the child.
std::mutex open_mutex;
[[maybe_unused]] const int fork_handlers_registered = pthread_atfork(
    [] { open_mutex.lock(); }, [] { open_mutex.unlock(); }, [] { open_mutex.unlock(); });

// Repeats a system call that a signal interrupted, as network and FUSE file systems allow.
template <class Call>
int uninterrupted(const Call& call) noexcept {
  int result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

FileStamp stamp_of(const struct stat& status) {
#if defined(__APPLE__)
  const timespec& modified = status.st_mtimespec;
#else
  const timespec& modified = status.st_mtim;
#endif
  return {static_cast<std::uint64_t>(status.st_ino), static_cast<std::int64_t>(status.st_size),
          static_cast<std::int64_t>(modified.tv_sec) * 1'000'000'000 + modified.tv_nsec};
}

FileStamp stamp_of(int fd) {
  struct stat status;
  const bool is_known = uninterrupted([&] { return fstat(fd, &status); }) == 0;
  return is_known ? stamp_of(status) : FileStamp{};
}

bool is_out_of_files(int error) { return error == EMFILE || error == ENFILE; }

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

ssize_t Descriptor::read_cached([[maybe_unused]] const iovec* parts, [[maybe_unused]] int count,
                                [[maybe_unused]] std::int64_t offset) const noexcept {
#if defined(RWF_NOWAIT)
  return preadv2(fd_, parts, count, offset, RWF_NOWAIT);
#else
  errno = EOPNOTSUPP;
  return -1;
#endif
}

void Descriptor::request(std::int64_t offset, std::size_t bytes) const noexcept {
#if defined(__APPLE__)
  radvisory advice{static_cast<off_t>(offset), static_cast<int>(bytes)};
  fcntl(fd_, F_RDADVISE, &advice);
#else
  // The system may limit requests to its own read-ahead size.
  constexpr std::size_t kMaxBytes = std::size_t{128} << 10;
  for (std::size_t done = 0; done < bytes; done += kMaxBytes) {
    posix_fadvise(fd_, offset + static_cast<std::int64_t>(done),
                  static_cast<off_t>(std::min(kMaxBytes, bytes - done)), POSIX_FADV_WILLNEED);
  }
#endif
}

struct OpenFiles::Kept {
  const OpenFiles* owner;
  Open file;
};

std::deque<OpenFiles::Kept>& OpenFiles::kept() {
  static auto& files = *new std::deque<Kept>;  // never destroyed: threads may read at exit
  return files;
}

OpenFiles::OpenFiles(std::vector<RowFile> files) : files_(std::move(files)), open_(files_.size()) {}

OpenFiles::~OpenFiles() {
  const std::lock_guard lock(open_mutex);
  std::erase_if(kept(), [this](const Kept& file) { return file.owner == this; });
}

std::size_t OpenFiles::max_open() noexcept {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxOpen;
  return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 4, 1, kMaxOpen));
}

OpenFiles::Open OpenFiles::open(std::size_t file, int& error) noexcept try {
  if (files_[file].opened != nullptr) return files_[file].opened;
  const std::lock_guard lock(open_mutex);
  if (Open found = open_[file].lock()) return found;
  const auto open_path = [&] {
    return uninterrupted([&] { return ::open(files_[file].path.c_str(), O_RDONLY | O_CLOEXEC); });
  };
  int fd = open_path();
  if (fd < 0 && is_out_of_files(errno) && !kept().empty()) {
    kept().clear();
    fd = open_path();
  }
  if (fd < 0) {
    error = errno;
    return nullptr;
  }
  const Open opened = std::make_shared<const Descriptor>(Descriptor(fd));
  open_[file] = opened;
  kept().push_back({this, opened});
  for (const std::size_t limit = max_open(); kept().size() > limit;) kept().pop_front();
  return opened;
} catch (const std::bad_alloc&) {
  error = ENOMEM;
  return nullptr;
}

std::optional<ReadFailure> OpenFiles::change_of(std::size_t file) const noexcept {
  const RowRead none{file, 0, 0, nullptr, 0};
  struct stat status;
  if (uninterrupted([&] { return stat(files_[file].path.c_str(), &status); }) != 0) {
    return ReadFailure{Reason::system, errno, 0, none};
  }
  const FileStamp now = stamp_of(status), then = files_[file].stamp;
  if (now == then) return std::nullopt;
  const bool is_shorter = S_ISREG(status.st_mode) && now.size < then.size;
  const Reason reason = is_shorter ? Reason::cut_short : Reason::replaced;
  return ReadFailure{reason, 0, now.size, none};
}

}  // namespace pinfeed::runtime
