// What is wanted of files, and why it could not be had.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinfeed::runtime {

// Bytes of a file, and where they go.
struct RowRead {
  std::size_t file;
  std::int64_t offset;
  std::size_t bytes;
  std::byte* to;
  std::size_t sample;  // the caller's number for it
};

// Why bytes could not be read.
struct ReadFailure {
  enum class Reason : std::uint8_t { system, cut_short, replaced };
  Reason reason;
  int error;          // errno, for `system`
  std::int64_t size;  // of the file, for `cut_short`
  RowRead read;       // of no bytes: none yet, its file is what failed
};

}  // namespace pinfeed::runtime
