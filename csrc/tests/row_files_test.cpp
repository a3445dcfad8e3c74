// Rows of files: read, mapped, cut short, by many threads, across forks.
#include "runtime/row_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/page_cache.h"
#include "runtime/thread_pool.h"
#include "tests/check.h"
#include "tests/concurrency.h"

namespace {

// Of the calling thread: how many more allocations succeed; negative: all of them.
thread_local int allocations_left = -1;

}  // namespace

// Not inlined, or g++ takes malloc() and delete, or new and free(), for a pair that does not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// Memory runs out after so many allocations of this thread.
class FailingAllocations {
 public:
  explicit FailingAllocations(int left) { allocations_left = left; }
  ~FailingAllocations() { allocations_left = -1; }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
};

using namespace std::chrono_literals;
using namespace pinfeed::tests;
using pinfeed::runtime::Descriptor;
using pinfeed::runtime::FileMarks;
using pinfeed::runtime::OpenFiles;
using pinfeed::runtime::ReadFailure;
using pinfeed::runtime::RowFile;
using pinfeed::runtime::RowFiles;
using pinfeed::runtime::RowRead;

constexpr std::size_t kRow = 3000;  // no multiple of a page, or of a cache line
constexpr std::int64_t kHeader = 128;
constexpr std::int64_t kMuch = std::int64_t{1} << 40;

// The byte that a file holds at a place; never 0.
std::byte byte_at(std::size_t file, std::int64_t offset) {
  return static_cast<std::byte>(1 + (offset * 7 + offset / 251 + static_cast<std::int64_t>(file)) %
                                        255);
}

// Files in a folder that goes with the object.
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
    return {paths_.back(), marks(number)};
  }

  FileMarks marks(std::size_t number) const {
    struct stat status{};
    CHECK(stat(path(number).c_str(), &status) == 0);
    return pinfeed::runtime::marks_of(status);
  }

  const std::string& path(std::size_t number) const { return paths_[number]; }

  // Makes the system forget what it has of a file in memory.
  void cool(std::size_t number) const {
    const int fd = open(paths_[number].c_str(), O_RDONLY);
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

// A file that comes open.
Descriptor only(const std::string& path) { return Descriptor(open(path.c_str(), O_RDONLY)); }

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

Batch random_batch(std::size_t files, std::int64_t rows, unsigned seed, int count = 256) {
  std::mt19937 random(seed);
  Batch batch;
  for (int i = 0; i < count; ++i) {
    batch.add(random() % files, static_cast<std::int64_t>(random()) % rows);
  }
  return batch;
}

bool is_cached(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  const bool cached = pinfeed::runtime::cached_at(fd, 0);
  close(fd);
  return cached;
}

bool reads_right(RowFiles& files, Batch batch, std::size_t threads = 2) {
  const auto failure = files.read(batch.reads(), threads);
  return !failure && batch.is_right();
}

// Reads until rows are looked at where they are mapped.
bool becomes_mapped(RowFiles& files, Batch batch) {
  std::vector<const std::byte*> where(batch.reads().size());
  for (int i = 0; i < 100; ++i) {
    if (files.find_mapped(batch.reads(), where.data())) return true;
    if (files.read(batch.reads(), 1)) return false;
  }
  return false;
}

bool maps_right(RowFiles& files, Batch batch) {
  const auto reads = batch.reads();
  std::vector<const std::byte*> where(reads.size());
  if (!files.find_mapped(reads, where.data())) return false;
  bool same = true;
  for (std::size_t i = 0; i < reads.size(); ++i) same = same && Batch::is_row(reads[i], where[i]);
  return same && !files.check_mapped(reads);
}

std::int64_t size_of(std::int64_t rows) { return kHeader + rows * static_cast<std::int64_t>(kRow); }

void test_one_file() {
  Folder folder;
  folder.add(size_of(1000));
  for (const bool cold : {true, false}) {
    RowFiles files({{folder.path(0), {}}}, only(folder.path(0)), kMuch);
    CHECK(files.size(0) == size_of(1000));
    for (unsigned seed = 0; seed < 4; ++seed) {
      if (cold) folder.cool(0);
      CHECK(reads_right(files, random_batch(1, 1000, seed), seed));
    }
    Batch all;  // in the page cache, or a map is looked at no more
    for (std::int64_t i = 0; i < 1000; ++i) all.add(0, i);
    CHECK(reads_right(files, all));
    CHECK(becomes_mapped(files, random_batch(1, 1000, 9)));
    for (unsigned seed = 0; seed < 4; ++seed) CHECK(maps_right(files, random_batch(1, 1000, seed)));
  }
}

void test_neighbours_and_nothing() {
  Folder folder;
  folder.add(size_of(1000));
  RowFiles files({{folder.path(0), {}}}, only(folder.path(0)), kMuch);
  Batch neighbours;  // more in a row than one call of preadv takes
  for (std::int64_t i = 0; i < 1000; ++i) neighbours.add(0, i);
  CHECK(reads_right(files, neighbours));
  Batch nothing;
  nothing.add(0, 1000, 0);  // at the very end
  nothing.add(0, 3, 0);
  nothing.add(0, 3);
  CHECK(reads_right(files, nothing));
  CHECK(becomes_mapped(files, neighbours));
  CHECK(maps_right(files, neighbours));
  CHECK(maps_right(files, nothing));
  CHECK(!files.read({}, 1));
}

void test_prefetched_rows_are_not_hot() {
  Folder folder;
  folder.add(size_of(1000));
  RowFiles files({{folder.path(0), {}}}, only(folder.path(0)), kMuch);
  bool had_to_ask = true;
  for (unsigned seed = 0; seed < 8 && had_to_ask; ++seed) {
    folder.cool(0);
    had_to_ask = !is_cached(folder.path(0));  // never where files lie in memory
    Batch batch = random_batch(1, 1000, seed);
    files.prefetch(batch.reads());
    CHECK(reads_right(files, batch));
    CHECK(!had_to_ask || !files.seems_hot());
  }
  Batch all;
  for (std::int64_t row = 0; row < 1000; ++row) all.add(0, row);
  CHECK(reads_right(files, all));
  files.prefetch(all.reads());  // they are there by themselves
  CHECK(becomes_mapped(files, all));
  files.prefetch(all.reads());
  CHECK(maps_right(files, all));
  files.prefetch({});
}

void test_without_budget() {
  Folder folder;
  folder.add(size_of(1000));
  RowFiles files({{folder.path(0), {}}}, only(folder.path(0)), size_of(1000) - 1);
  CHECK(!becomes_mapped(files, random_batch(1, 1000, 0)));
  CHECK(reads_right(files, random_batch(1, 1000, 1)));
}

void test_one_of_many_beyond_the_budget() {
  Folder folder;
  std::vector<RowFile> parts;
  for (const int rows : {100, 1000, 100}) parts.push_back(folder.add(size_of(rows)));
  RowFiles files(parts, {}, size_of(1000) - 1);
  Batch all, small;
  for (std::size_t part = 0; part < 3; ++part) {
    for (std::int64_t row = 0; row < 100; ++row) {
      all.add(part, row);
      if (part != 1) small.add(part, row);
    }
  }
  CHECK(!becomes_mapped(files, all));
  CHECK(becomes_mapped(files, small));
  CHECK(maps_right(files, small));
  CHECK(!becomes_mapped(files, all));
  CHECK(reads_right(files, all));
}

// The file's bytes must count once.
void test_threads_that_map_one_file() {
  Folder folder;
  folder.add(size_of(1000));
  Batch all;
  for (std::int64_t row = 0; row < 1000; ++row) all.add(0, row);
  for (int trial = 0; trial < 200; ++trial) {
    RowFiles files({{folder.path(0), {}}}, only(folder.path(0)), size_of(1000) * 3 / 2);
    CHECK(reads_right(files, all));
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        ++ready;
        while (ready < 3) std::this_thread::yield();
        const std::byte* where = nullptr;
        Batch one;
        one.add(0, 0);
        files.find_mapped(one.reads(), &where);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(becomes_mapped(files, all));
  }
  // What they had is there for others.
  RowFiles files({{folder.path(0), {}}}, only(folder.path(0)), size_of(1000));
  CHECK(reads_right(files, all) && becomes_mapped(files, all));
}

void test_many_files() {
  Folder folder;
  std::vector<RowFile> parts;
  constexpr std::size_t kParts = 600;  // more than are kept open
  for (std::size_t i = 0; i < kParts; ++i) parts.push_back(folder.add(size_of(8)));
  RowFiles files(parts, {}, kMuch);
  for (std::size_t i = 0; i < kParts; i += 3) folder.cool(i);
  for (unsigned seed = 0; seed < 4; ++seed) {
    CHECK(reads_right(files, random_batch(kParts, 8, seed, 2000), 3));
  }
  CHECK(becomes_mapped(files, random_batch(kParts, 8, 9, 2000)));
  CHECK(maps_right(files, random_batch(kParts, 8, 10, 2000)));
  for (std::size_t i = 0; i < kParts; ++i) CHECK(files.mapped(i, size_of(8)) != nullptr);
  CHECK(files.mapped(0, size_of(8) + 1) == nullptr);
}

void test_missing_replaced_and_short() {
  Folder folder;
  std::vector<RowFile> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(folder.add(size_of(8)));
  const auto failure_of = [&](std::size_t file) {
    RowFiles files(parts, {}, kMuch);
    Batch batch;
    for (std::size_t i = 0; i < 4; ++i) batch.add(i == file ? file : 0, 7);
    return files.read(batch.reads(), 2);
  };
  CHECK(!failure_of(0));
  CHECK(unlink(folder.path(1).c_str()) == 0);
  auto failure = failure_of(1);
  CHECK(failure && failure->reason == ReadFailure::Reason::system && failure->error == ENOENT);
  CHECK(failure && failure->read.file == 1 && failure->read.sample == 1);
  CHECK(truncate(folder.path(2).c_str(), size_of(7)) == 0);
  failure = failure_of(2);
  CHECK(failure && failure->reason == ReadFailure::Reason::cut_short &&
        failure->size == size_of(7));
  CHECK(truncate(folder.path(3).c_str(), size_of(9)) == 0);
  failure = failure_of(3);
  CHECK(failure && failure->reason == ReadFailure::Reason::replaced && failure->read.sample == 3);
}

// A descriptor that can't be read from: what the system says comes back.
void test_system_errors() {
  RowFiles files({{"/", {}}}, only("/"), kMuch);
  Batch batch;
  batch.add(0, 0);
  const auto failure = files.read(batch.reads(), 1);
  CHECK(failure && failure->reason == ReadFailure::Reason::system && failure->error == EISDIR);
}

#if defined(__linux__)
std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const descriptors = opendir("/proc/self/fd");
  while (readdir(descriptors) != nullptr) ++count;
  closedir(descriptors);
  return count;
}

// A file that somebody has a lease on is opened when he has given it back: what a file system of
// another process does too, it takes its time, and signals come meanwhile.
class Lease {
 public:
  explicit Lease(const std::string& path) : file_(open(path.c_str(), O_RDWR)) {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGIO, &ignore, &before_);  // which asks for it back
    taken_ = fcntl(file_.fd(), F_SETLEASE, F_WRLCK) == 0;
  }
  ~Lease() {
    give_back();
    sigaction(SIGIO, &before_, nullptr);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  bool taken() const { return taken_; }
  void give_back() { fcntl(file_.fd(), F_SETLEASE, F_UNLCK); }

 private:
  Descriptor file_;
  struct sigaction before_;
  bool taken_ = false;
};

bool can_lease() {
  Folder folder;
  return Lease(folder.add(1).path).taken();
}

void test_signals_while_a_file_is_opened() {
  Folder folder;
  const RowFile file = folder.add(size_of(8));
  RowFiles files({file}, {}, kMuch);
  struct sigaction interrupt = {}, before;
  interrupt.sa_handler = [](int) {};
  sigaction(SIGUSR1, &interrupt, &before);
  Lease lease(file.path);
  std::atomic<bool> right{false}, done{false};
  std::thread reader([&] {
    right = reads_right(files, random_batch(1, 8, 0), 1);
    done = true;
  });
  for (int i = 0; i < 100 && !done; ++i) {
    pthread_kill(reader.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(2ms);
  }
  CHECK(!done);
  lease.give_back();
  reader.join();
  CHECK(right);
  sigaction(SIGUSR1, &before, nullptr);
}

void test_out_of_memory() {
  Folder folder;
  const RowFile file = folder.add(size_of(8));
  const std::size_t open_before = open_descriptors();
  bool finished = false;
  for (int i = 0; i < 100 && !finished; ++i) {  // until all allocations succeed
    try {
      const std::vector<RowFile> one(1, RowFile{"", {}});
      Descriptor opened = only(file.path);
      const FailingAllocations failing(i);
      const OpenFiles files(one, std::move(opened));
      finished = true;
    } catch (const std::bad_alloc&) {
    }
    CHECK(open_descriptors() == open_before);
  }
  CHECK(finished);
  finished = false;
  for (int i = 0; i < 100 && !finished; ++i) {
    OpenFiles files({file}, {});
    ReadFailure failure{ReadFailure::Reason::system, 0, 0, {0, 0, 0, nullptr, 0}};
    const FailingAllocations failing(i);
    finished = files.open(0, failure) != nullptr;
    CHECK(finished || failure.error == ENOMEM);
    CHECK(open_descriptors() == open_before + (finished ? 1 : 0));
  }
  CHECK(finished);
}
#endif

// A pipe takes the place of a file and goes again, at any moment. Whoever opens it waits for good.
void test_pipes_that_come_and_go() {
  Folder folder;
  const RowFile file = folder.add(size_of(8));
  const std::string aside = file.path + "-aside", pipe = file.path + "-pipe", next = pipe + "-next";
  CHECK(link(file.path.c_str(), aside.c_str()) == 0);
  CHECK(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(passes_in_fork([&] {
    std::atomic<bool> stop{false};
    std::thread other([&] {
      for (bool is_pipe = true; !stop; is_pipe = !is_pipe) {
        link((is_pipe ? pipe : aside).c_str(), next.c_str());
        rename(next.c_str(), file.path.c_str());
      }
    });
    int right = 0, refused = 0;
    for (int i = 0; i < 30000 || right == 0 || refused == 0; ++i) {
      OpenFiles files({file}, {});
      ReadFailure failure{ReadFailure::Reason::system, 0, 0, {0, 0, 0, nullptr, 0}};
      const OpenFiles::Open opened = files.open(0, failure);
      ++(opened != nullptr ? right : refused);
      CHECK(opened != nullptr || failure.reason == ReadFailure::Reason::replaced);
      CHECK(opened == nullptr || (fcntl(opened->fd(), F_GETFL) & O_NONBLOCK) == 0);
    }
    stop = true;
    other.join();
  }));
  for (const std::string& path : {aside, pipe, next}) unlink(path.c_str());
}

// Cut within a page and between pages, of one file and of many, read and mapped.
void test_shrinking() {
  for (const std::int64_t left : {std::int64_t{0}, std::int64_t{40960}, size_of(1000) - 1}) {
    for (const bool is_one : {true, false}) {
      for (const bool is_mapped : {true, false}) {
        Folder folder;
        const RowFile file = folder.add(size_of(1000));
        RowFiles files({is_one ? RowFile{file.path, {}} : file},
                       is_one ? only(file.path) : Descriptor(), kMuch);
        Batch batch;
        for (std::int64_t row = 992; row < 1000; ++row) batch.add(0, row);
        const auto reads = batch.reads();
        if (is_mapped) CHECK(becomes_mapped(files, random_batch(1, 1000, 0)));
        std::vector<const std::byte*> where(reads.size());
        if (is_mapped) CHECK(files.find_mapped(reads, where.data()));
        CHECK(truncate(file.path.c_str(), left) == 0);
        auto failure = files.read(reads, 2);
        if (is_mapped) {
          for (std::size_t i = 0; i < reads.size(); ++i) {
            std::memcpy(reads[i].to, where[i], reads[i].bytes);
          }
          CHECK(!files.is_whole(0));
          failure = files.check_mapped(reads);
        }
        CHECK(failure && failure->reason == ReadFailure::Reason::cut_short);
        CHECK(failure && failure->size == left);
      }
    }
  }
}

// None of the rows is touched; but what else happened to the file, nobody knows.
void test_shrinking_behind_the_rows() {
  for (const bool is_one : {true, false}) {
    Folder folder;
    const RowFile file = folder.add(size_of(1000));
    RowFiles files({is_one ? RowFile{file.path, {}} : file},
                   is_one ? only(file.path) : Descriptor(), kMuch);
    Batch batch;
    for (std::int64_t row = 0; row < 8; ++row) batch.add(0, row);
    CHECK(becomes_mapped(files, random_batch(1, 1000, 0)));
    CHECK(maps_right(files, batch));
    CHECK(truncate(file.path.c_str(), size_of(999)) == 0);
    const auto failure = files.check_mapped(batch.reads());
    CHECK(failure && failure->reason == ReadFailure::Reason::cut_short);
    CHECK(failure && failure->size == size_of(999));
  }
}

void test_threads() {
  Folder folder;
  std::vector<RowFile> parts;
  for (int i = 0; i < 300; ++i) parts.push_back(folder.add(size_of(8)));
  RowFiles files(parts, {}, kMuch);
  std::atomic<bool> all_right{true};
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (unsigned i = 0; i < 20; ++i) {
        const Batch batch = random_batch(parts.size(), 8, thread * 100 + i);
        if (!maps_right(files, batch) && !reads_right(files, batch)) all_right = false;
      }
    });
  }
  for (unsigned i = 0; i < 20; ++i) folder.cool(i);
  for (std::thread& thread : threads) thread.join();
  CHECK(all_right);
}

void test_fork() {
  Folder folder;
  std::vector<RowFile> parts;
  for (int i = 0; i < 300; ++i) parts.push_back(folder.add(size_of(8)));
  RowFiles files(parts, {}, kMuch);
  std::atomic<bool> stop{false};
  std::atomic<bool> all_right{true};
  std::thread busy([&] {
    for (unsigned i = 0; !stop; ++i) {
      const Batch batch = random_batch(parts.size(), 8, i);
      if (!maps_right(files, batch) && !reads_right(files, batch, 3)) all_right = false;
      if (i % 8 == 0) folder.cool(i % 300);
    }
  });
  for (unsigned i = 0; i < 20; ++i) {
    CHECK(passes_in_fork([&] { CHECK(reads_right(files, random_batch(parts.size(), 8, i), 3)); }));
  }
  stop = true;
  busy.join();
  CHECK(all_right);
}

#if defined(__linux__)
std::size_t reader_threads() {
  std::size_t count = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* const task = readdir(tasks)) {
    char name[32] = "";
    const int fd =
        open(("/proc/self/task/" + std::string(task->d_name) + "/comm").c_str(), O_RDONLY);
    if (fd < 0) continue;
    if (read(fd, name, sizeof name - 1) > 0 && std::string(name).starts_with("pinfeed-read")) {
      ++count;
    }
    close(fd);
  }
  closedir(tasks);
  return count;
}

void test_readers_end() {
  pinfeed::runtime::set_reader_idle_timeout(50ms);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> met{0};
    pinfeed::runtime::wait_for(8, 1, 8, [&](std::size_t, std::size_t) {
      ++met;
      CHECK(eventually([&] { return met == 8; }));
    });
    CHECK(eventually([] { return reader_threads() == 0; }));
  }
  pinfeed::runtime::set_reader_idle_timeout(10s);
}
#endif

}  // namespace

int main() {
  run("rows: of one file, cold and hot", test_one_file);
  run("rows: neighbours, and rows of no bytes", test_neighbours_and_nothing);
  run("rows: prefetched rows are not hot", test_prefetched_rows_are_not_hot);
  run("rows: a file beyond the budget is read", test_without_budget);
  run("rows: one of many files beyond the budget", test_one_of_many_beyond_the_budget);
  run("rows: threads that map one file", test_threads_that_map_one_file);
  run("rows: of many files", test_many_files);
  run("rows: files that are missing, replaced or short", test_missing_replaced_and_short);
  run("rows: errors of the system", test_system_errors);
#if defined(__linux__)
  run("rows: memory that runs out leaves no file open", test_out_of_memory);
  run_if(can_lease(), "there are no leases here", "rows: signals while a file is opened",
         test_signals_while_a_file_is_opened);
#endif
  run_if(kCanFork, kWhyNoFork, "rows: pipes that come and go", test_pipes_that_come_and_go);
  run("rows: files that shrink", test_shrinking);
  run("rows: files that are cut behind the rows", test_shrinking_behind_the_rows);
  run("rows: several threads", test_threads);
  // A child hung there once in some 2,000 forks, and in as many without a sanitizer never.
  run_if(kCanFork && !PINFEED_UNDER_ASAN,
         "a sanitizer's own locks may stay locked in a child, if other threads allocate",
         "rows: forks while another thread reads", test_fork);
#if defined(__linux__)
  run("rows: threads that wait for the disk end when they are idle", test_readers_end);
#endif
  return summary();
}
