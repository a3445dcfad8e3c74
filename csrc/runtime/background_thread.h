// Background threads that run until the process ends and never run Python code.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace pinfeed::runtime {

// Starts a detached thread that runs entry(argument). Returns false if the system refuses one.
//
// The thread blocks all signals sent to the process, so SIGINT always reaches Python's main thread.
// Signals of the thread's own faults stay deliverable, so that faulthandler can print a traceback
// before the process ends.
inline bool start_background_thread(void* (*entry)(void*), void* argument) noexcept {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
    sigdelset(&blocked, fault);
  }
  // A new thread inherits its creator's mask, so no signal can arrive before the mask is set.
  sigset_t previous;
  pthread_sigmask(SIG_SETMASK, &blocked, &previous);
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, entry, argument);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (error != 0) return false;
  pthread_detach(thread);
  return true;
}

// Names the calling thread for debuggers and `top -H`; Linux keeps the first 15 characters.
inline void name_this_thread([[maybe_unused]] const char* name) noexcept {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), name);
#elif defined(__APPLE__)
  pthread_setname_np(name);
#endif
}

}  // namespace pinfeed::runtime
