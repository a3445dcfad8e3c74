// The whole test framework of the native tests: CHECK, run(), run_if() and summary().
#pragma once

#include <atomic>
#include <cstdio>
#include <exception>

#if defined(__has_feature)
#define PINFEED_HAS_FEATURE(feature) __has_feature(feature)
#else
#define PINFEED_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || PINFEED_HAS_FEATURE(address_sanitizer)
#define PINFEED_UNDER_ASAN 1
#else
#define PINFEED_UNDER_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || PINFEED_HAS_FEATURE(thread_sanitizer)
#define PINFEED_UNDER_TSAN 1
#else
#define PINFEED_UNDER_TSAN 0
#endif

namespace pinfeed::tests {

// Atomic, because CHECK may be used on any thread of a test.
inline std::atomic<int> failed_checks{0};
inline int passed_tests = 0;
inline int failed_tests = 0;

inline void fail(const char* file, int line, const char* what) {
  ++failed_checks;
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
}

// Runs one test; it passes if no CHECK in it fails and no exception leaves it.
template <typename Test>
void run(const char* name, Test&& test) {
  const int failed_before = failed_checks;
  try {
    test();
  } catch (const std::exception& error) {
    fail(name, 0, error.what());
  }
  const bool passed = failed_checks == failed_before;
  ++(passed ? passed_tests : failed_tests);
  std::printf("%s %s\n", passed ? "ok    " : "FAILED", name);
  // A forked child must not inherit, and print again, buffered output.
  std::fflush(stdout);
}

// The same, or one line that says why this build or machine cannot run the test.
template <typename Test>
void run_if(bool possible, const char* reason, const char* name, Test&& test) {
  if (possible) return run(name, test);
  std::printf("skip   %s: %s\n", name, reason);
  std::fflush(stdout);
}

// Prints the totals and returns the exit status for main().
inline int summary() {
  std::printf("%d passed, %d failed\n", passed_tests, failed_tests);
  return failed_tests == 0 && passed_tests > 0 ? 0 : 1;
}

}  // namespace pinfeed::tests

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::pinfeed::tests::fail(__FILE__, __LINE__, #condition))
