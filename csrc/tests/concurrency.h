// Waits for other threads and for forked processes, with timeouts.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/check.h"

namespace pinfeed::tests {

// Waits for a condition that other threads set; false after 10 s.
template <typename Condition>
bool eventually(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Runs `child` in a forked process and returns whether all its checks passed. A child that hangs is
// killed by its alarm and counts as failed.
template <typename Child>
bool passes_in_fork(Child&& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    failed_checks = 0;
    child();
    _exit(failed_checks == 0 ? 0 : 1);
  }
  int status = -1;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

#if defined(__linux__)
// The number of this process's threads whose names begin so.
inline std::size_t threads_named(const std::string& prefix) {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream file(task.path() / "comm");  // the thread may have ended
    count += std::getline(file, name) && name.starts_with(prefix);
  }
  return count;
}
#endif

// For run_if(): ThreadSanitizer kills a child that starts threads if its parent had some.
inline constexpr bool kCanFork = !PINFEED_UNDER_TSAN;
inline constexpr const char* kWhyNoFork =
    "ThreadSanitizer has no support for threads after a fork of a process with threads";

}  // namespace pinfeed::tests
