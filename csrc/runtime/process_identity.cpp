#include "runtime/process_identity.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pinfeed::runtime {
namespace {

std::atomic<std::uint32_t> forks{0};

// When the library is loaded, before any child that could need it.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

struct Status {
  bool exists = false;
  bool known = false;  // the rest was read
  long pid = 0;
  char state = '?';
  long threads = 0;
  std::uint32_t start = 0;  // clock ticks since the system started, modulo 2^32
};

// /proc may hide processes of other users, or be that of another PID namespace.
bool is_nowhere(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

Status read_status(const char* path) {
  Status status;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    status.exists = errno != ENOENT && errno != ESRCH;
    return status;
  }
  char text[1024];
  const ssize_t size = read(file, text, sizeof text - 1);
  const int error = errno;
  close(file);
  status.exists = size > 0 || error != ESRCH;
  if (size <= 0) return status;
  text[size] = '\0';
  status.pid = std::strtol(text, nullptr, 10);

  // "pid (name) state ..." where the name may hold anything, parentheses too.
  const char* field = std::strrchr(text, ')');
  if (field == nullptr || field[1] != ' ') return status;
  field += 2;
  status.state = *field;
  for (int number = 3; number <= 22; ++number) {
    if (number == 20) status.threads = std::strtol(field, nullptr, 10);
    if (number == 22) {
      status.start = static_cast<std::uint32_t>(std::strtoull(field, nullptr, 10));
      status.known = true;
      break;
    }
    field = std::strchr(field, ' ');
    if (field == nullptr) break;
    ++field;
  }
  return status;
}

}  // namespace

std::uint32_t fork_depth() { return forks.load(std::memory_order_relaxed); }

ProcessIdentity this_process() {
  const pid_t pid = getpid();
  const Status status = read_status("/proc/self/stat");
  // Where /proc is that of another PID namespace, its numbers are not those of getpid() and fork().
  if (!status.known || status.pid != pid) return 0;
  return std::uint64_t{static_cast<std::uint32_t>(pid)} << 32 | status.start;
}

bool is_gone(ProcessIdentity process) {
  const auto pid = static_cast<pid_t>(process >> 32);
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const Status status = read_status(path);
  if (!status.exists) return is_nowhere(pid);
  if (!status.known) return false;
  if (status.start != static_cast<std::uint32_t>(process)) return true;
  // A process that ended stays in the table until its parent asks, and may do so while another of
  // its threads, killed too, is still on its way out.
  const bool ended = status.state == 'Z' || status.state == 'X' || status.state == 'x';
  return ended && status.threads <= 1;
}

}  // namespace pinfeed::runtime
