#include "runtime/row_files.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/row_runs.h"
#include "runtime/thread_pool.h"

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kReaders = 16;  // enough to keep one disk busy
// Linux allows a process 65,530 mappings.
constexpr std::size_t kMaxMapped = 16384;

using Reason = ReadFailure::Reason;

// Counters of the calling thread.
struct Waits {
  std::int64_t major_faults = 0;  // pages read from disk
  std::int64_t switches = -1;     // voluntary context switches; negative: the system can't tell

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

ReadFailure failure_of(const RowRuns& batch, const RowRun& run) {
  const RowRead& read = batch.read_of(run);
  if (run.error != 0) return {Reason::system, run.error, 0, read};
  return {Reason::cut_short, 0, stamp_of(run.file_open->fd()).size, read};
}

void unmap(const std::byte* data, std::int64_t bytes) noexcept {
  munmap(const_cast<std::byte*>(data), static_cast<std::size_t>(bytes));
}

}  // namespace

RowFiles::RowFiles(std::vector<RowFile> files)
    : files_(std::move(files)), maps_(std::make_unique<Mapped[]>(files_.count())) {
  for (std::size_t i = 0; i < files_.count(); ++i) maps_[i].data = files_[i].mapped;
}

RowFiles::~RowFiles() {
  for (std::size_t i = 0; i < files_.count(); ++i) {
    const std::byte* const data = maps_[i].data;
    if (data != files_[i].mapped) unmap(data, files_[i].stamp.size);
  }
}

std::optional<ReadFailure> RowFiles::find_change(std::span<const std::size_t> files,
                                                 std::size_t bytes) {
  using std::chrono::nanoseconds;
  const auto now = nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  const bool all = !seems_hot() || files.size() <= kFew;
  std::size_t spare = bytes / kBytesPerCheck;
  std::vector<std::size_t> asked;
  for (const std::size_t file : files) {
    const std::int64_t ago = now - maps_[file].asked.load(std::memory_order_relaxed);
    if (!all && ago < nanoseconds(kCheckInterval).count()) {
      if (spare == 0) continue;
      --spare;
    }
    asked.push_back(file);
  }
  std::mutex failing;
  std::optional<ReadFailure> first;
  // If rows come from the disk, the inodes of their files may too.
  const std::size_t threads = seems_hot() ? 1 : kReaders;
  parallel_for_blocking(asked.size(), 1, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto change = files_.change_of(asked[i]);
      if (!change) {
        maps_[asked[i]].asked.store(now, std::memory_order_relaxed);
        continue;
      }
      const std::lock_guard lock(failing);
      if (!first || change->read.file < first->read.file) first = change;
    }
  });
  return first;
}

const std::byte* RowFiles::map(std::size_t file) noexcept {
  const std::byte* mapped = maps_[file].data.load(std::memory_order_acquire);
  if (mapped != nullptr || files_.count() > kMaxMapped) return mapped;
  int ignored = 0;
  const OpenFiles::Open opened = files_.open(file, ignored);
  if (opened == nullptr) return nullptr;
  const std::int64_t bytes = files_[file].stamp.size;
  void* const made =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED, opened->fd(), 0);
  if (made == MAP_FAILED) return nullptr;
  const auto* const data = static_cast<const std::byte*>(made);
  if (maps_[file].data.compare_exchange_strong(mapped, data)) return data;
  unmap(data, bytes);  // another thread was faster
  return mapped;
}

bool RowFiles::are_in_memory(std::span<const std::byte* const> bytes) noexcept {
  const std::int64_t faults_before = Waits::now().major_faults;
  for (const std::byte* const byte : bytes) {
    static_cast<void>(*const_cast<const volatile std::byte*>(byte));
  }
  if (Waits::now().major_faults == faults_before) return true;
  hits_.store(0, std::memory_order_relaxed);
  return false;
}

void RowFiles::request(std::span<const RowRead> reads) {
  RowRuns batch(reads);
  for (const RowRun& run : batch.runs()) request(run);
}

void RowFiles::request(const RowRun& run) {
  int ignored = 0;
  if (const OpenFiles::Open opened = files_.open(run.file, ignored)) {
    opened->request(run.offset, run.bytes);
  }
}

std::optional<ReadFailure> RowFiles::read(std::span<const RowRead> reads, std::size_t threads) {
  RowRuns batch(reads);
  std::vector<RowRun>& runs = batch.runs();
  std::size_t misses = 0;
  std::size_t max_files = OpenFiles::max_open();
  for (std::size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    // Limits the number of files open at a time.
    std::size_t files = 0;
    for (; end < runs.size(); ++end) {
      const bool is_next = end == begin || runs[end].file != runs[end - 1].file;
      if (is_next && ++files > max_files) break;
    }
    const std::span window(&runs[begin], end - begin);
    if (auto failure = ask(batch, window, threads)) {
      max_files = std::min(files, max_files) / 2;
      if (!is_out_of_files(failure->error) || max_files == 0) return failure;
      // Other readers hold open files up to the limit, so these are read in turns.
      for (RowRun& run : window) run.file_open.reset();
      end = begin;
      continue;
    }
    const std::size_t missing = wait(batch, window);
    misses += missing;
    for (RowRun& run : window) {
      if (run.done < run.bytes) return failure_of(batch, run);
      run.file_open.reset();
    }
  }
  count(reads.size(), misses);
  return std::nullopt;
}

void RowFiles::count(std::size_t rows, std::size_t misses) noexcept {
  if (misses > 0) {
    hits_.store(0, std::memory_order_relaxed);
  } else {
    hits_.fetch_add(static_cast<std::int64_t>(rows), std::memory_order_relaxed);
  }
}

// Reads cached rows and requests the rest. The disk works while later files are opened.
std::optional<ReadFailure> RowFiles::ask(RowRuns& batch, std::span<RowRun> window,
                                         std::size_t threads) {
  constexpr std::size_t kChunk = 4;
  std::mutex failing;
  std::optional<ReadFailure> first;
  parallel_for(window.size(), kChunk, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      RowRun& run = window[i];
      int error = 0;
      run.file_open = files_.open(run.file, error);
      if (run.file_open == nullptr) {
        const std::lock_guard lock(failing);
        if (!first) first = ReadFailure{Reason::system, error, 0, batch.read_of(run)};
        return;
      }
      if (batch.attempt(run, false)) continue;
      run.file_open->request(run.offset + static_cast<std::int64_t>(run.done),
                             run.bytes - run.done);
    }
  });
  return first;
}

// Waits for the requested runs, and returns the number of runs that were not in memory.
std::size_t RowFiles::wait(const RowRuns& batch, std::span<RowRun> window) {
  std::vector<RowRun*> missing;
  for (RowRun& run : window) {
    if (run.done < run.bytes) missing.push_back(&run);
  }
  parallel_for_blocking(missing.size(), 1, kReaders, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      RowRun& run = *missing[i];
      const std::int64_t before = run.unsure ? Waits::now().switches : 0;
      while (!batch.attempt(run, true)) {
      }
      run.waited = run.unsure && (before < 0 || Waits::now().switches != before);
    }
  });
  return static_cast<std::size_t>(std::ranges::count_if(
      missing, [](const RowRun* run) { return !run->unsure || run->waited; }));
}

}  // namespace pinfeed::runtime
