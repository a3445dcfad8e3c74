// Which process, and whether it is gone: a process number alone may be given to another one.
#pragma once

#include <cstdint>

namespace pinfeed::runtime {

// A process number and when that process began, in one word; 0 is no process.
using ProcessIdentity = std::uint64_t;

// Counts the forks between the process that loaded this library and this one, so that what belongs
// to one process alone can be told from what a child merely inherited.
std::uint32_t fork_depth();

// 0 where the system does not tell: no /proc, or that of another PID namespace.
ProcessIdentity this_process();

// Whether none of the process's threads will run another instruction. False while in doubt.
bool is_gone(ProcessIdentity process);

}  // namespace pinfeed::runtime
