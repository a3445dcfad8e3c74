// How an arena's file is laid out, for the sources of the arena alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/arena.h"
#include "runtime/process_identity.h"

namespace pinfeed::runtime {

inline constexpr std::uint64_t kArenaMagic =
    0x70696e6665656402;                     // ends with the version of the layout
inline constexpr std::size_t kPage = 4096;  // the unit of slots, whatever the system's is
inline constexpr std::uint32_t kSlots = 65536;

// Class 0 holds one page; each power of two is reached in four equal steps from the one below it,
// where these are whole pages.
constexpr std::uint32_t size_class_of(std::size_t bytes) {
  const std::size_t last = std::max(bytes, kPage) - 1;
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(last)) - 1;
  const auto quarter = static_cast<std::uint32_t>(last >> (exponent - 2)) & 3;
  return (exponent - 11) * 4 + quarter - 3;
}

constexpr std::size_t capacity_of(std::uint32_t size_class) {
  const std::uint32_t quarters = size_class + 3;
  const std::size_t base = std::size_t{1} << (11 + quarters / 4);
  const std::size_t capacity = base + (quarters % 4 + 1) * (base / 4);
  return (capacity + kPage - 1) / kPage * kPage;
}
static_assert(size_class_of(1) == 0 && capacity_of(0) == kPage);
static_assert(size_class_of(kPage + 1) == 1 && capacity_of(1) == 2 * kPage);
static_assert(capacity_of(size_class_of(1'000'000)) == 1024 * 1024);

// Lies at the start of the file. Zero pages are a valid table without slots.
struct Arena::Table {
  std::uint64_t magic;
  std::uint64_t id;
  std::uint64_t reserved;
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

// Where a slot lies: its first page in the file and its size class, in one word.
struct Arena::Extent {
  std::size_t offset;
  std::uint32_t size_class;

  std::size_t capacity() const { return capacity_of(size_class); }
  std::uint64_t packed() const { return offset / kPage << 8 | size_class; }
  static Extent of(std::uint64_t packed) {
    return {(packed >> 8) * kPage, static_cast<std::uint32_t>(packed & 0xff)};
  }
};

}  // namespace pinfeed::runtime
