#include "runtime/row_files.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/page_cache.h"
#include "runtime/row_runs.h"
#include "runtime/thread_pool.h"

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kReaders = 16;  // what one disk is kept busy by
constexpr std::size_t kProbes = 16;   // rows that are looked at to tell whether all are in memory
constexpr std::size_t kProbesAhead = 8;  // the same, before they are asked for

using Reason = ReadFailure::Reason;

std::atomic<std::int64_t> all_mapped_bytes{0};

// Of a file that is not to be mapped, or not yet: a map without bytes, in which no row is found.
GuardedMap no_map;

// Whether that many more may be mapped; then they count.
bool take_budget(std::int64_t bytes, std::int64_t budget) noexcept {
  std::int64_t mapped = all_mapped_bytes;
  while (bytes <= budget - mapped) {
    if (all_mapped_bytes.compare_exchange_weak(mapped, mapped + bytes)) return true;
  }
  return false;
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

RowFiles::RowFiles(std::vector<RowFile> files, Descriptor only, std::int64_t mapping_budget)
    : files_(std::move(files), std::move(only)),
      mapping_budget_(mapping_budget),
      mappings_(std::make_unique<Mapping[]>(files_.count())) {}

RowFiles::~RowFiles() {
  for (std::size_t i = 0; i < files_.count(); ++i) {
    GuardedMap* const map = mappings_[i].map.load();
    if (map == nullptr || map == &no_map) continue;
    all_mapped_bytes -= static_cast<std::int64_t>(map->size());
    map->destroy();
  }
}

void RowFiles::map(std::size_t file) noexcept {
  Mapping& mapping = mappings_[file];
  GuardedMap* map = mapping.map.load(std::memory_order_acquire);
  if (map != nullptr) return;
  ReadFailure ignored{Reason::system, 0, 0, {file, 0, 0, nullptr, 0}};
  const OpenFiles::Open opened = files_.open(file, ignored);
  struct stat status;
  if (opened == nullptr || fstat(opened->fd(), &status) != 0) return;
  // One thread tries, and once: to try again with every batch would cost more than it brings. The
  // others read meanwhile, and so does a child that was forked meanwhile, for good.
  if (!mapping.map.compare_exchange_strong(map, &no_map)) return;
  const auto bytes = static_cast<std::int64_t>(status.st_size);
  if (!take_budget(bytes, mapping_budget_)) return;
  map = GuardedMap::create(opened->fd(), static_cast<std::size_t>(bytes));
  if (map == nullptr) {
    all_mapped_bytes -= bytes;
    return;
  }
  mapping.map.store(map, std::memory_order_release);
  mapping.size.store(bytes, std::memory_order_relaxed);
  mapping.data.store(map->data(), std::memory_order_release);
#if defined(MADV_POPULATE_READ)
  // Faults for a few pages at a time would take several times as long. But what is on the disk is
  // not read: nobody may ever ask for it.
  if (seems_cached(opened->fd(), bytes)) {
    madvise(const_cast<std::byte*>(map->data()), map->size(), MADV_POPULATE_READ);
  }
#endif
}

bool RowFiles::may_be_mapped() noexcept {
  if (mapping_budget_ == 0 || !seems_hot()) return false;
  GuardedMap::arm();
  return true;
}

const std::byte* RowFiles::mapped(std::size_t file, std::int64_t end) noexcept {
  const Mapping& mapping = mappings_[file];
  const std::byte* data = mapping.data.load(std::memory_order_acquire);
  if (data == nullptr) {
    map(file);
    data = mapping.data.load(std::memory_order_acquire);
  }
  return end <= mapping.size.load(std::memory_order_relaxed) ? data : nullptr;
}

bool RowFiles::are_in_memory(std::span<const std::byte* const> where) noexcept {
  const std::int64_t faults_before = Waits::now().major_faults;
  const std::size_t step = std::max<std::size_t>(where.size() / kProbes, 1);
  for (std::size_t i = 0; i < where.size(); i += step) {
    static_cast<void>(*const_cast<const volatile std::byte*>(where[i]));
  }
  if (Waits::now().major_faults == faults_before) return true;
  hits_.store(0, std::memory_order_relaxed);
  return false;
}

bool RowFiles::find_mapped(std::span<const RowRead> reads, const std::byte** where) noexcept {
  if (reads.empty() || !may_be_mapped()) return false;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const auto end = reads[i].offset + static_cast<std::int64_t>(reads[i].bytes);
    const std::byte* const beginning = mapped(reads[i].file, end);
    if (beginning == nullptr) return false;
    // One without bytes may lie behind the last page.
    where[i] = beginning + (reads[i].bytes > 0 ? reads[i].offset : 0);
  }
  if (!are_in_memory({where, reads.size()})) return false;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (reads[i].bytes == 0) where[i] += reads[i].offset;
  }
  return true;
}

bool RowFiles::is_whole(std::size_t file) noexcept {
  Mapping& mapping = mappings_[file];
  const GuardedMap* const map = mapping.map.load(std::memory_order_acquire);
  if (map->torn()) {
    mapping.data.store(nullptr, std::memory_order_relaxed);  // from now on its rows are read
    return false;
  }
  return map->seems_whole() || std::cmp_greater_equal(files_.size(file), map->size());
}

bool RowFiles::seem_unchanged(std::span<const std::size_t> files, std::size_t bytes) noexcept {
  if (files_.came_open()) return true;
  using std::chrono::nanoseconds;
  const auto now = nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  const bool all = files_.count() <= kFew;
  std::size_t spare = 1 + bytes / kBytesPerQuestion;
  for (const std::size_t file : files) {
    std::atomic<std::int64_t>& asked = mappings_[file].asked;
    const std::int64_t last = asked.load(std::memory_order_relaxed);
    if (last == now) continue;
    if (!all && now - last < nanoseconds(kAskedEvery).count()) {
      if (spare == 0) continue;
      --spare;
    }
    if (files_.change_of({.file = file, .offset = 0, .bytes = 0, .to = nullptr, .sample = 0}, -1)) {
      return false;
    }
    asked.store(now, std::memory_order_relaxed);
  }
  return true;
}

std::optional<ReadFailure> RowFiles::check_mapped(std::span<const RowRead> reads) {
  std::vector<std::size_t> files(reads.size());
  std::ranges::transform(reads, files.begin(), &RowRead::file);
  std::size_t bytes = 0;
  for (const RowRead& read : reads) bytes += read.bytes;
  bool whole = seem_unchanged(files, bytes);
  std::size_t file = files_.count();
  for (const RowRead& read : reads) {
    if (std::exchange(file, read.file) == read.file) continue;
    whole = whole && is_whole(file);
  }
  if (whole) return std::nullopt;
  return explain_change(reads);
}

ReadFailure RowFiles::explain_change(std::span<const RowRead> reads) {
  hits_.store(0, std::memory_order_relaxed);
  // A row that can't be read any more says most.
  std::vector<std::byte> scratch;
  for (RowRead read : reads) {
    scratch.resize(std::max(scratch.size(), read.bytes));
    read.to = scratch.data();
    if (const auto failure = this->read({&read, 1}, 1)) return *failure;
  }
  // All rows can be read; but a file is not what it was, so none of them is to be trusted.
  for (const RowRead& read : reads) {
    if (!files_.came_open()) {
      if (const auto change = files_.change_of(read, -1)) return *change;
    }
    if (is_whole(read.file)) continue;
    const std::int64_t size = files_.size(read.file);
    const bool is_cut = size >= 0 && size < mappings_[read.file].size;
    return is_cut ? ReadFailure{Reason::cut_short, 0, size, read}
                  : ReadFailure{Reason::changed, 0, 0, read};
  }
  return {Reason::changed, 0, 0, reads[0]};
}

void RowFiles::request(std::span<const RowRead> reads) {
  if (prefetched_.load(std::memory_order_relaxed) > 0) return;
  RowRuns batch(reads);
  for (const RowRun& run : batch.runs()) request(run);
}

void RowFiles::prefetch(std::span<const RowRead> reads) {
  if (seems_hot()) return;
  RowRuns batch(reads);
  std::vector<RowRun>& runs = batch.runs();
  // Of few runs, for where one is missing, asking makes the system read a page, and that alone.
  const std::size_t step = std::max<std::size_t>(runs.size() / kProbesAhead, 1);
  std::size_t probe = 0;
  while (probe < runs.size() && is_cached(runs[probe])) probe += step;
  if (probe >= runs.size()) return;
  for (const RowRun& run : runs) request(run);
  hits_.store(0, std::memory_order_relaxed);
  prefetched_.fetch_add(static_cast<std::int64_t>(reads.size()), std::memory_order_relaxed);
}

void RowFiles::request(const RowRun& run) {
  ReadFailure ignored{Reason::system, 0, 0, {run.file, 0, 0, nullptr, 0}};
  if (const OpenFiles::Open opened = files_.open(run.file, ignored)) {
    runtime::request(opened->fd(), run.offset, run.bytes);
  }
}

// Whether the beginning of a run is in memory. Also true where nobody can tell.
bool RowFiles::is_cached(const RowRun& run) {
  ReadFailure ignored{Reason::system, 0, 0, {run.file, 0, 0, nullptr, 0}};
  const OpenFiles::Open opened = files_.open(run.file, ignored);
  return opened == nullptr || cached_at(opened->fd(), run.offset);
}

std::optional<ReadFailure> RowFiles::read(std::span<const RowRead> reads, std::size_t threads) {
  RowRuns batch(reads);
  std::vector<RowRun>& runs = batch.runs();
  std::size_t misses = 0;
  std::size_t most_files = OpenFiles::most();
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
      for (RowRun& run : window) run.file_open.reset();
      end = begin;
      continue;
    }
    const std::size_t missing = wait(batch, window);
    misses += missing;
    std::size_t file = files_.count();
    for (RowRun& run : window) {
      if (run.done < run.bytes) return failure_of(batch, run);
      const bool is_next = std::exchange(file, run.file) != run.file;
      if (is_next && !files_.came_open()) {
        if (auto change = files_.change_of(batch.read_of(run), run.file_open->fd())) return change;
      }
      run.file_open.reset();
    }
  }
  count(reads.size(), misses);
  return std::nullopt;
}

void RowFiles::count(std::size_t rows, std::size_t misses) noexcept {
  const auto read = static_cast<std::int64_t>(rows);
  std::int64_t prefetched = prefetched_.load(std::memory_order_relaxed);
  while (prefetched > 0) {
    const std::int64_t left = std::max<std::int64_t>(prefetched - read, 0);
    if (prefetched_.compare_exchange_weak(prefetched, left, std::memory_order_relaxed)) break;
  }
  if (misses > 0) {
    hits_.store(0, std::memory_order_relaxed);
  } else if (prefetched <= 0) {
    hits_.fetch_add(read, std::memory_order_relaxed);
  }
}

// Reads what is at hand, and requests the rest. The disk is at work while later files are opened.
std::optional<ReadFailure> RowFiles::ask(RowRuns& batch, std::span<RowRun> window,
                                         std::size_t threads) {
  constexpr std::size_t kChunk = 4;
  std::mutex failing;
  std::optional<ReadFailure> first;
  parallel_for(window.size(), kChunk, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      RowRun& run = window[i];
      ReadFailure failure{Reason::system, 0, 0, batch.read_of(run)};
      run.file_open = files_.open(run.file, failure);
      if (run.file_open == nullptr) {
        const std::lock_guard lock(failing);
        if (!first) first = failure;
        return;
      }
      if (batch.attempt(run, false)) continue;
      runtime::request(run.file_open->fd(), run.offset + static_cast<std::int64_t>(run.done),
                       run.bytes - run.done);
    }
  });
  return first;
}

// Waits for what was requested, and returns how many runs were not in memory.
std::size_t RowFiles::wait(const RowRuns& batch, std::span<RowRun> window) {
  std::vector<RowRun*> missing;
  for (RowRun& run : window) {
    if (run.done < run.bytes) missing.push_back(&run);
  }
  wait_for(missing.size(), 1, kReaders, [&](std::size_t begin, std::size_t end) {
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

ReadFailure RowFiles::failure_of(const RowRuns& batch, const RowRun& run) {
  const RowRead& read = batch.read_of(run);
  if (run.error != 0) return {Reason::system, run.error, 0, read};
  return {Reason::cut_short, 0, std::max<std::int64_t>(files_.size(read.file), 0), read};
}

}  // namespace pinfeed::runtime
