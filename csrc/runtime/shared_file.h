// Anonymous files of shared memory: in no folder, and gone with the last process that has them.
#pragma once

#include <cstddef>
#include <string>

namespace pinfeed::runtime {

// Returns the descriptor of an empty file that programs which are executed don't inherit. Lists of
// open files show `name`. Throws std::system_error where memfd_create is missing or refused.
int create_shared_file(const std::string& name);

// Takes memory for a range of a file now, and makes the file as long: a full file system or a
// system that does not overcommit would end whoever writes by SIGBUS. False, with errno, if there
// is none; a part of the range may then have got some.
bool take_memory(int descriptor, std::size_t offset, std::size_t bytes) noexcept;

}  // namespace pinfeed::runtime
