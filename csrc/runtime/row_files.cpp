#include "runtime/row_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <numeric>
#include <utility>

#include "runtime/thread_pool.h"

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kMostOpen = 256;  // files, or a quarter of what the process may have
constexpr std::size_t kMostRows = 64;   // in one read
constexpr std::size_t kMostBytes = std::size_t{512} << 10;
// The system may cut requests longer than its own reading ahead short.
constexpr std::size_t kAdviceBytes = std::size_t{128} << 10;
constexpr std::size_t kReaders = 16;  // what one disk is kept busy by
constexpr std::size_t kProbes = 16;   // rows that are looked at to tell whether all are in memory

using Reason = ReadFailure::Reason;

// One for all RowFiles, which a fork could otherwise leave locked in the child without a trace.
std::mutex open_mutex;
[[maybe_unused]] const int fork_handlers_registered = pthread_atfork(
    [] { open_mutex.lock(); }, [] { open_mutex.unlock(); }, [] { open_mutex.unlock(); });

std::size_t most_open() noexcept {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostOpen;
  return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 4, 1, kMostOpen));
}

bool is_out_of_files(int error) { return error == EMFILE || error == ENFILE; }

std::atomic<std::int64_t> all_mapped_bytes{0};

FileMarks marks_of(const struct stat& status) {
#if defined(__APPLE__)
  const timespec& modified = status.st_mtimespec;
#else
  const timespec& modified = status.st_mtim;
#endif
  return {static_cast<std::uint64_t>(status.st_ino), static_cast<std::int64_t>(status.st_size),
          static_cast<std::int64_t>(modified.tv_sec) * 1'000'000'000 + modified.tv_nsec};
}

void request(int fd, std::int64_t offset, std::size_t bytes) noexcept {
#if defined(__APPLE__)
  radvisory advice{static_cast<off_t>(offset), static_cast<int>(bytes)};
  fcntl(fd, F_RDADVISE, &advice);
#else
  for (std::size_t done = 0; done < bytes; done += kAdviceBytes) {
    posix_fadvise(fd, offset + static_cast<std::int64_t>(done),
                  static_cast<off_t>(std::min(kAdviceBytes, bytes - done)), POSIX_FADV_WILLNEED);
  }
#endif
}

// Reads without waiting for a disk. Negative if the system can't tell, or has nothing at hand.
ssize_t read_at_hand([[maybe_unused]] int fd, [[maybe_unused]] const iovec* parts,
                     [[maybe_unused]] int count, [[maybe_unused]] std::int64_t offset) noexcept {
#if defined(RWF_NOWAIT)
  return preadv2(fd, parts, count, offset, RWF_NOWAIT);
#else
  errno = EOPNOTSUPP;
  return -1;
#endif
}

// Whether bytes all over the file are in memory, as far as the system can tell.
[[maybe_unused]] bool seems_at_hand(int fd, std::int64_t size) noexcept {
  constexpr std::int64_t kPlaces = 256;
  std::byte byte;
  const iovec part{&byte, 1};
  for (std::int64_t i = 0; i < kPlaces; ++i) {
    const std::int64_t offset = size / kPlaces * i + size % kPlaces * i / kPlaces;
    if (read_at_hand(fd, &part, 1, offset) < 0) return errno == EOPNOTSUPP;
  }
  return true;
}

// Of the calling thread.
struct Waits {
  std::int64_t major_faults = 0;  // pages that had to be read
  std::int64_t switches = -1;  // times it gave the CPU up to wait; negative: the system can't tell

  static Waits now() noexcept {
    rusage usage;
#if defined(RUSAGE_THREAD)
    if (getrusage(RUSAGE_THREAD, &usage) != 0) return {};
    return {usage.ru_majflt, usage.ru_nvcsw};
#else
    if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
    return {usage.ru_majflt, -1};
#endif
  }
};

}  // namespace

RowFiles::Descriptor::~Descriptor() { close(fd_); }

struct RowFiles::Kept {
  const RowFiles* owner;
  Open file;
};

std::deque<RowFiles::Kept>& RowFiles::kept() {
  static auto& files = *new std::deque<Kept>;  // never destroyed: threads may read at the end
  return files;
}

// One read from a file, to the places of several rows.
struct RowFiles::Run {
  std::size_t begin, end;  // of the parts
  std::size_t file;
  std::int64_t offset;
  std::size_t bytes;
  std::size_t done = 0;
  Open file_open{};
  int error = 0;
  bool ended = false;   // the file did, before the run
  bool unsure = false;  // whether it was at hand, for the file system doesn't tell
  bool waited = false;  // for what was unsure
};

class RowFiles::Runs {
 public:
  explicit Runs(std::span<const RowRead> reads) : reads_(reads) {
    std::vector<std::size_t> order(reads.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {},
                      [&](std::size_t i) { return std::pair(reads[i].file, reads[i].offset); });
    parts_.reserve(reads.size());
    for (const std::size_t i : order) {
      for (std::size_t done = 0; done < reads[i].bytes; done += kMostBytes) {
        add(i, done, std::min(kMostBytes, reads[i].bytes - done));
      }
    }
  }

  std::vector<Run>& runs() { return runs_; }

  // One attempt; whether the run is over, read or failed.
  bool attempt(Run& run, bool wait) const noexcept {
    std::array<iovec, kMostRows> rest;
    int count = 0;
    std::size_t skip = run.done;
    for (std::size_t i = run.begin; i < run.end; ++i) {
      const std::size_t skipped = std::min(skip, parts_[i].bytes);
      skip -= skipped;
      if (skipped == parts_[i].bytes) continue;
      rest[static_cast<std::size_t>(count++)] = {parts_[i].to + skipped, parts_[i].bytes - skipped};
    }
    const std::int64_t offset = run.offset + static_cast<std::int64_t>(run.done);
    const ssize_t got = wait ? preadv(run.file_open->fd(), rest.data(), count, offset)
                             : read_at_hand(run.file_open->fd(), rest.data(), count, offset);
    if (got > 0) {
      run.done += static_cast<std::size_t>(got);
    } else if (wait && got == 0) {
      run.ended = true;
    } else if (wait && errno != EINTR) {
      run.error = errno;
    } else if (!wait && got < 0) {
      run.unsure = errno == EOPNOTSUPP;
    }
    return run.done == run.bytes || run.ended || run.error != 0;
  }

  // The read that a run stopped in.
  const RowRead& read_of(const Run& run) const {
    std::size_t i = run.begin;
    for (std::size_t done = run.done; i + 1 < run.end && done >= parts_[i].bytes; ++i) {
      done -= parts_[i].bytes;
    }
    return reads_[parts_[i].read];
  }

 private:
  struct Part {
    std::byte* to;
    std::size_t bytes;
    std::size_t read;
  };

  void add(std::size_t read, std::size_t skipped, std::size_t bytes) {
    const RowRead& from = reads_[read];
    const std::int64_t offset = from.offset + static_cast<std::int64_t>(skipped);
    const bool touches =
        !runs_.empty() && runs_.back().file == from.file &&
        runs_.back().offset + static_cast<std::int64_t>(runs_.back().bytes) == offset;
    if (!touches || runs_.back().bytes + bytes > kMostBytes ||
        runs_.back().end - runs_.back().begin == kMostRows) {
      runs_.push_back({parts_.size(), parts_.size(), from.file, offset, 0});
    }
    parts_.push_back({from.to + skipped, bytes, read});
    runs_.back().end = parts_.size();
    runs_.back().bytes += bytes;
  }

  std::span<const RowRead> reads_;
  std::vector<Part> parts_;
  std::vector<Run> runs_;
};

RowFiles::RowFiles(std::vector<RowFile> files, int open_fd, std::int64_t mapping_budget)
    : files_(std::move(files)),
      only_(open_fd < 0 ? nullptr : std::make_shared<const Descriptor>(open_fd)),
      mapping_budget_(mapping_budget),
      maps_(std::make_unique<std::atomic<GuardedMap*>[]>(files_.size())),
      open_(files_.size()) {}

RowFiles::~RowFiles() {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (GuardedMap* const map = maps_[i].load()) map->destroy();
  }
  if (only_ == nullptr) {
    const std::lock_guard lock(open_mutex);
    std::erase_if(kept(), [this](const Kept& file) { return file.owner == this; });
  }
  all_mapped_bytes -= mapped_bytes_;
}

RowFiles::Open RowFiles::open(std::size_t file, ReadFailure& failure) noexcept try {
  if (only_ != nullptr) return only_;
  const std::lock_guard lock(open_mutex);
  if (Open found = open_[file].lock()) return found;
  const char* const path = files_[file].path.c_str();
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && is_out_of_files(errno) && !kept().empty()) {
    kept().clear();
    fd = ::open(path, O_RDONLY | O_CLOEXEC);
  }
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) {
    failure.reason = Reason::system;
    failure.error = errno;
    if (fd >= 0) close(fd);
    return nullptr;
  }
  Open opened = std::make_shared<const Descriptor>(fd);
  const FileMarks now = marks_of(status);
  if (now != files_[file].marks) {
    failure.reason = now.size < files_[file].marks.size ? Reason::cut_short : Reason::replaced;
    failure.size = now.size;
    return nullptr;
  }
  open_[file] = opened;
  kept().push_back({this, opened});
  for (const std::size_t most = most_open(); kept().size() > most;) kept().pop_front();
  return opened;
} catch (const std::bad_alloc&) {
  failure.reason = Reason::system;
  failure.error = ENOMEM;
  return nullptr;
}

std::int64_t RowFiles::size(std::size_t file) {
  struct stat status;
  const int failed =
      only_ != nullptr ? fstat(only_->fd(), &status) : stat(files_[file].path.c_str(), &status);
  return failed != 0 ? -errno : static_cast<std::int64_t>(status.st_size);
}

GuardedMap* RowFiles::map_of(std::size_t file) noexcept {
  GuardedMap* map = maps_[file].load(std::memory_order_acquire);
  if (map != nullptr) return map;
  ReadFailure ignored{};
  const Open opened = open(file, ignored);
  struct stat status;
  if (opened == nullptr || fstat(opened->fd(), &status) != 0) return nullptr;
  const auto bytes = static_cast<std::int64_t>(status.st_size);
  if ((all_mapped_bytes += bytes) > mapping_budget_) {
    all_mapped_bytes -= bytes;
    mapping_budget_ = 0;  // to try again with every batch would cost more than it brings
    return nullptr;
  }
  GuardedMap* const made = GuardedMap::create(opened->fd(), static_cast<std::size_t>(bytes));
  if (made != nullptr && maps_[file].compare_exchange_strong(map, made)) {
    mapped_bytes_ += bytes;
#if defined(MADV_POPULATE_READ)
    // Faults for a few pages at a time would take several times as long. But what is on the disk is
    // not read: nobody may ever ask for it.
    if (seems_at_hand(opened->fd(), bytes)) {
      madvise(const_cast<std::byte*>(made->data()), made->size(), MADV_POPULATE_READ);
    }
#endif
    return made;
  }
  if (made != nullptr) made->destroy();
  all_mapped_bytes -= bytes;
  return map;  // which another thread was faster to make, or null
}

bool RowFiles::find_mapped(std::span<const RowRead> reads, const std::byte** where) noexcept {
  if (mapping_budget_ == 0 || !seems_hot() || reads.empty()) return false;
  GuardedMap::arm();
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const GuardedMap* const map = map_of(reads[i].file);
    const auto end = reads[i].offset + static_cast<std::int64_t>(reads[i].bytes);
    if (map == nullptr || map->torn() || std::cmp_greater(end, map->size())) return false;
    where[i] = map->data() + reads[i].offset;
  }
  const std::int64_t faults_before = Waits::now().major_faults;
  const std::size_t step = std::max<std::size_t>(reads.size() / kProbes, 1);
  for (std::size_t i = 0; i < reads.size(); i += step) {
    if (reads[i].bytes > 0) static_cast<void>(*const_cast<const volatile std::byte*>(where[i]));
  }
  if (Waits::now().major_faults == faults_before) return true;
  hits_.store(0, std::memory_order_relaxed);
  return false;
}

std::optional<ReadFailure> RowFiles::check_mapped(std::span<const RowRead> reads) {
  std::size_t file = files_.size();
  bool whole = true;
  for (const RowRead& read : reads) {
    if (std::exchange(file, read.file) == read.file) continue;
    const GuardedMap* const map = maps_[file].load(std::memory_order_acquire);
    whole = whole && (map->seems_whole() || std::cmp_greater_equal(size(file), map->size()));
    whole = whole && !map->torn();
  }
  if (whole) return std::nullopt;
  hits_.store(0, std::memory_order_relaxed);
  // The files say what is wrong.
  std::vector<std::byte> scratch;
  for (RowRead read : reads) {
    scratch.resize(std::max(scratch.size(), read.bytes));
    read.to = scratch.data();
    if (auto failure = this->read({&read, 1}, 1)) return failure;
  }
  return ReadFailure{Reason::changed, 0, 0, reads[0]};
}

void RowFiles::expect(std::span<const RowRead> reads) {
  Runs runs(reads);
  for (const Run& run : runs.runs()) {
    ReadFailure ignored{};
    if (const Open opened = open(run.file, ignored)) request(opened->fd(), run.offset, run.bytes);
  }
}

std::optional<ReadFailure> RowFiles::read(std::span<const RowRead> reads, std::size_t threads) {
  Runs batch(reads);
  std::vector<Run>& runs = batch.runs();
  std::size_t misses = 0;
  std::size_t most_files = most_open();
  for (std::size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    // So many files at a time that all of them can be open.
    std::size_t files = 0;
    for (; end < runs.size(); ++end) {
      const bool is_next = end == begin || runs[end].file != runs[end - 1].file;
      if (is_next && ++files > most_files) break;
    }
    const std::span window(&runs[begin], end - begin);
    if (auto failure = ask(batch, window, threads)) {
      most_files = std::min(files, most_files) / 2;
      if (!is_out_of_files(failure->error) || most_files == 0) return failure;
      // Others have so many files open that these have to take turns.
      for (Run& run : window) run.file_open.reset();
      end = begin;
      continue;
    }
    const std::size_t missing = wait(batch, window);
    misses += missing;
    for (Run& run : window) {
      if (run.done < run.bytes) return failure_of(batch, run);
      run.file_open.reset();
    }
  }
  if (misses > 0) {
    hits_.store(0, std::memory_order_relaxed);
  } else {
    hits_.fetch_add(static_cast<std::int64_t>(reads.size()), std::memory_order_relaxed);
  }
  return std::nullopt;
}

// Reads what is at hand, and requests the rest. The disk is at work while later files are opened.
std::optional<ReadFailure> RowFiles::ask(Runs& batch, std::span<Run> window, std::size_t threads) {
  constexpr std::size_t kChunk = 4;
  std::mutex failing;
  std::optional<ReadFailure> first;
  parallel_for(window.size(), kChunk, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      Run& run = window[i];
      ReadFailure failure{Reason::system, 0, 0, batch.read_of(run)};
      run.file_open = open(run.file, failure);
      if (run.file_open == nullptr) {
        const std::lock_guard lock(failing);
        if (!first) first = failure;
        return;
      }
      if (batch.attempt(run, false)) continue;
      request(run.file_open->fd(), run.offset + static_cast<std::int64_t>(run.done),
              run.bytes - run.done);
    }
  });
  return first;
}

// Waits for what was requested, and returns how many runs were not in memory.
std::size_t RowFiles::wait(const Runs& batch, std::span<Run> window) {
  std::vector<Run*> missing;
  for (Run& run : window) {
    if (run.done < run.bytes) missing.push_back(&run);
  }
  wait_for(missing.size(), 1, kReaders, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      Run& run = *missing[i];
      const std::int64_t before = run.unsure ? Waits::now().switches : 0;
      while (!batch.attempt(run, true)) {
      }
      run.waited = run.unsure && (before < 0 || Waits::now().switches != before);
    }
  });
  return static_cast<std::size_t>(
      std::ranges::count_if(missing, [](const Run* run) { return !run->unsure || run->waited; }));
}

ReadFailure RowFiles::failure_of(const Runs& batch, const Run& run) {
  const RowRead& read = batch.read_of(run);
  if (run.error != 0) return {Reason::system, run.error, 0, read};
  return {Reason::cut_short, 0, std::max<std::int64_t>(size(read.file), 0), read};
}

}  // namespace pinfeed::runtime
