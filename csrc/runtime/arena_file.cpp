#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "runtime/arena.h"
#include "runtime/arena_table.h"
#include "runtime/process_identity.h"
#include "runtime/shared_file.h"

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kSmallestArena = std::size_t{64} << 20;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// A place for what only this process knows; pages that are never looked at take no memory.
std::atomic<std::uint64_t>* zeroed_words(std::size_t count) {
  void* words = mmap(nullptr, count * sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::atomic<std::uint64_t>*>(words);
}

}  // namespace

Arena::Arena(int descriptor, std::byte* base, std::size_t reserved, bool created)
    : descriptor_(descriptor),
      file_(FileIdentity::of(descriptor)),
      base_(base),
      table_(*reinterpret_cast<Table*>(base)),
      reserved_(reserved),
      created_(created),
      created_at_depth_(fork_depth()),
      populated_(zeroed_words(kSlots)) {}

std::string Arena::file_name(long process) { return "pinfeed-" + std::to_string(process); }

bool Arena::is_mine() const { return created_ && created_at_depth_ == fork_depth(); }

Arena& Arena::map(int descriptor, std::size_t reserved, bool created) {
  void* const base =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED) throw_errno("mmap");
#if defined(__linux__)
  madvise(base, reserved, MADV_DONTDUMP);  // batches in a core dump would be many gigabytes
#endif
  return *new Arena(descriptor, static_cast<std::byte*>(base), reserved, created);
}

Arena& Arena::create(std::size_t reserved, std::size_t max_bytes) {
  if (this_process() == 0) {
    throw std::runtime_error("/proc/self/stat can't be read, or is that of another PID namespace");
  }
  const int descriptor = create_shared_file(file_name(getpid()));
  try {
    if (!take_memory(descriptor, 0, sizeof(Table))) throw_errno("fallocate");
    reserved = std::max(reserved / page_bytes() * page_bytes(), kSmallestArena);
    Arena* arena = nullptr;
    while (arena == nullptr) {
      try {
        if (ftruncate(descriptor, static_cast<off_t>(reserved)) != 0) throw_errno("ftruncate");
        arena = &map(descriptor, reserved, true);
      } catch (const std::system_error&) {
        // A limit on address space or on the size of files: be content with less.
        if (reserved / 2 < kSmallestArena) throw;
        reserved = reserved / 2 / page_bytes() * page_bytes();
      }
    }
#if defined(__linux__)
    // Nobody can cut the file short any more, which would kill whoever touches the rest.
    fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
#endif
    Table& table = arena->table_;
    table.id = this_process() ^
               std::uint64_t{0x9e3779b97f4a7c15} * reinterpret_cast<std::uintptr_t>(arena->base_);
    arena->set_max_bytes(max_bytes);
    table.magic = kArenaMagic;
    return *arena;
  } catch (...) {
    close(descriptor);
    throw;
  }
}

Arena& Arena::attach(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) throw_errno("fstat");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < kSmallestArena) throw std::runtime_error("the file is no arena");
  const int kept = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (kept < 0) throw_errno("fcntl");
  try {
    // Before it is mapped: an Arena is for ever.
    std::uint64_t magic = 0;
    if (pread(kept, &magic, sizeof magic, offsetof(Table, magic)) != sizeof magic ||
        magic != kArenaMagic) {
      throw std::runtime_error("the arena was made by another version of pinfeed");
    }
    return map(kept, size, false);
  } catch (...) {
    close(kept);
    throw;
  }
}

}  // namespace pinfeed::runtime
