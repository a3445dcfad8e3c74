// Anonymous files of shared memory: in no folder, and gone with the last process that has them.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>

namespace pinfeed::runtime {

// Returns the descriptor of an empty file that programs which are executed don't inherit. Lists of
// open files show `name`. Throws std::system_error where memfd_create is missing or refused.
int create_shared_file(const std::string& name);

// Takes memory for a range of a file now, so that no write to it can fail later: a full file system
// or a system that does not overcommit would end whoever writes by SIGBUS. False, with errno, if
// there is none; a part of the range may then have got some.
bool take_memory(int descriptor, std::size_t offset, std::size_t bytes) noexcept;

// Which file a descriptor leads to. The number alone is not enough: that of a memory file is small.
struct FileIdentity {
  dev_t file_system = 0;
  ino_t number = 0;

  // All zeros if the descriptor is not open.
  static FileIdentity of(int descriptor) noexcept;
  bool operator==(const FileIdentity&) const = default;
};

}  // namespace pinfeed::runtime
