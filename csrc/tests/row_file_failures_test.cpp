// Rows of files that fail: missing, replaced, truncated, without descriptors or memory.
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
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/concurrency.h"
#include "tests/row_files_case.h"

namespace {

// The number of allocations of this thread that still succeed; negative: all.
thread_local int allocations_left = -1;

}  // namespace

// Not inlined, or g++ warns that malloc() and delete, or new and free(), don't match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// Memory runs out after this many allocations of the thread.
class FailingAllocations {
 public:
  explicit FailingAllocations(int left) { allocations_left = left; }
  ~FailingAllocations() { allocations_left = -1; }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
};

using namespace std::chrono_literals;
using namespace pinfeed::tests;
using pinfeed::runtime::OpenFiles;

// For files opened by path.
void test_missing_replaced_and_short() {
  Folder folder;
  std::vector<RowFile> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(folder.add(size_of(8)));
  RowFiles files(parts);
  const auto change_of = [&](std::size_t file) {
    return files.find_change(std::vector<std::size_t>{0, file}, 2 * kRow);
  };
  CHECK(!change_of(1));
  CHECK(unlink(folder.path(1).c_str()) == 0);
  auto change = change_of(1);
  CHECK(change && change->reason == ReadFailure::Reason::system && change->error == ENOENT);
  CHECK(change && change->read.file == 1 && change->read.bytes == 0);
  CHECK(truncate(folder.path(2).c_str(), size_of(7)) == 0);
  change = change_of(2);
  CHECK(change && change->reason == ReadFailure::Reason::cut_short && change->size == size_of(7));
  CHECK(truncate(folder.path(3).c_str(), size_of(9)) == 0);
  change = change_of(3);
  CHECK(change && change->reason == ReadFailure::Reason::replaced && change->read.file == 3);
  CHECK(rename(folder.path(3).c_str(), folder.path(0).c_str()) == 0);
  change = change_of(0);
  CHECK(change && change->reason == ReadFailure::Reason::replaced && change->read.file == 0);
}

// A descriptor that can't be read: reports the system's error.
void test_system_errors() {
  RowFiles files({opened("/")});
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

// A file with a lease is opened after its holder releases it. As with a FUSE file system, that
// takes time, and signals arrive meanwhile.
class Lease {
 public:
  explicit Lease(const std::string& path) : file_(open(path.c_str(), O_RDWR)) {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGIO, &ignore, &before_);  // which requests it back
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
  RowFiles files({file});
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
    OpenFiles files({file});
    int error = 0;
    const FailingAllocations failing(i);
    finished = files.open(0, error) != nullptr;
    CHECK(finished || error == ENOMEM);
    CHECK(open_descriptors() == open_before + (finished ? 1 : 0));
  }
  CHECK(finished);
}
#endif

// A file that is truncated while it is read.
void test_shrinking() {
  for (const std::int64_t left : {std::int64_t{0}, std::int64_t{40960}, size_of(1000) - 1}) {
    Folder folder;
    const RowFile file = folder.add(size_of(1000));
    RowFiles files({opened(file.path)});
    Batch batch;
    for (std::int64_t row = 992; row < 1000; ++row) batch.add(0, row);
    CHECK(truncate(file.path.c_str(), left) == 0);
    const auto failure = files.read(batch.reads(), 2);
    CHECK(failure && failure->reason == ReadFailure::Reason::cut_short);
    CHECK(failure && failure->size == left);
  }
}

}  // namespace

void row_file_failure_tests() {
  run("rows: files that are missing, replaced or short", test_missing_replaced_and_short);
  run("rows: errors of the system", test_system_errors);
#if defined(__linux__)
  run("rows: memory that runs out leaves no file open", test_out_of_memory);
  run_if(can_lease(), "this file system has no leases", "rows: signals while a file is opened",
         test_signals_while_a_file_is_opened);
#endif
  run("rows: files that shrink", test_shrinking);
}
