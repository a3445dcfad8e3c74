// Anonymous files of shared memory: in no folder, and gone with the last process that has them.
#pragma once

#include <cstddef>
#include <string>

namespace pinfeed::runtime {

enum class SharedFile {
  memory,  // memfd_create: Linux; no limit but the system's memory
  posix,   // shm_open: limited by what is mounted at /dev/shm
  any,     // the first of these that the system allows
};

// Returns the descriptor of an empty file that programs which are executed don't inherit. Lists of
// open files show `name`, which may get a number after it. Throws std::system_error.
int create_shared_file(const std::string& name, SharedFile kind);

// Takes memory for a range of a file now, so that no write to it can fail later: a full file system
// or a system that does not overcommit would end whoever writes by SIGBUS. False, with errno, if
// there is none; the range is then as before.
bool take_memory(int descriptor, std::size_t offset, std::size_t bytes) noexcept;

}  // namespace pinfeed::runtime
