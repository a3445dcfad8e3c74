// How an arena's file is laid out, for the sources of the arena alone.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/arena.h"
#include "runtime/process_identity.h"

namespace pinfeed::runtime {

inline constexpr std::uint64_t kArenaMagic =
    0x70696e6665656403;                     // ends with the version of the layout
inline constexpr std::size_t kUnit = 4096;  // of offsets, whatever the system's page is
inline constexpr std::uint32_t kSlots = 65536;

// Slots are whole pages of the system (64 KiB on some ARM servers), or none could be given back.
inline std::size_t page_bytes() {
  static const auto bytes = std::max(kUnit, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return bytes;
}

constexpr std::size_t whole_pages(std::size_t bytes, std::size_t page) {
  return (bytes + page - 1) / page * page;
}

// The smallest class holds one page; each power of two is reached in four equal steps from the one
// below it, where these are whole pages.
constexpr std::uint32_t size_class_of(std::size_t bytes, std::size_t page) {
  const std::size_t last = std::max(bytes, page) - 1;
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(last)) - 1;
  const auto quarter = static_cast<std::uint32_t>(last >> (exponent - 2)) & 3;
  return (exponent - 11) * 4 + quarter - 3;
}

constexpr std::size_t capacity_of(std::uint32_t size_class, std::size_t page) {
  const std::uint32_t quarters = size_class + 3;
  const std::size_t base = std::size_t{1} << (11 + quarters / 4);
  return whole_pages(base + (quarters % 4 + 1) * (base / 4), page);
}
static_assert(size_class_of(1, kUnit) == 0 && capacity_of(0, kUnit) == kUnit);
static_assert(size_class_of(kUnit + 1, kUnit) == 1 && capacity_of(1, kUnit) == 2 * kUnit);
static_assert(capacity_of(size_class_of(1'000'000, kUnit), kUnit) == 1024 * 1024);
static_assert(capacity_of(size_class_of(1, 16 * kUnit), 16 * kUnit) == 16 * kUnit);
static_assert(capacity_of(size_class_of(16 * kUnit + 1, 16 * kUnit), 16 * kUnit) == 32 * kUnit);

// Lies at the start of the file. Zero pages are a valid table without slots.
struct Arena::Table {
  std::uint64_t magic;
  std::uint64_t id;
  std::atomic<std::uint64_t> max_bytes;
  std::atomic<ProcessIdentity> sweeper;
  std::atomic<std::uint64_t> high_water;
  std::atomic<std::uint64_t> grows;
  std::atomic<std::uint64_t> waits;
  std::atomic<std::uint64_t> shortage;    // errno of the last time the system gave no memory
  std::atomic<std::uint64_t> kept_until;  // see Note [Kept memory]
  std::atomic<ProcessIdentity> owners[kOwners];
  std::atomic<std::uint32_t> giving_back[kOwners];  // how often each owner is about to
  struct {
    std::atomic<std::uint64_t> extent;  // 0 while there is no such slot
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint64_t> fills;  // how often it got memory
  } slots[kSlots];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// While it lives, memory from `kept_until` on may be given back.
class Arena::GivingBack {
 public:
  GivingBack(Table& table, std::uint32_t owner) : table_(table), owner_(owner) {
    ++table_.giving_back[owner_];
  }
  ~GivingBack() { --table_.giving_back[owner_]; }
  GivingBack(const GivingBack&) = delete;
  GivingBack& operator=(const GivingBack&) = delete;

  bool allows(std::size_t offset) const { return offset >= table_.kept_until; }

 private:
  Table& table_;
  const std::uint32_t owner_;
};

// Where a slot lies: its offset in the file and its size class, in one word.
struct Arena::Extent {
  std::size_t offset;
  std::uint32_t size_class;

  std::size_t capacity() const { return capacity_of(size_class, page_bytes()); }
  std::uint64_t packed() const { return offset / kUnit << 8 | size_class; }
  static Extent of(std::uint64_t packed) {
    return {(packed >> 8) * kUnit, static_cast<std::uint32_t>(packed & 0xff)};
  }
};

}  // namespace pinfeed::runtime
