#include "runtime/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <optional>

#include "runtime/arena_table.h"
#include "runtime/process_identity.h"

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kLargestRequest = std::size_t{1} << 47;
constexpr std::size_t kWorthPopulating = 64 * 1024;

// Gives the pages of a range back to the system, for all processes.
bool punch([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__)
  return madvise(data, bytes, MADV_REMOVE) == 0;
#else
  return false;
#endif
}

}  // namespace

std::uint64_t Arena::id() const { return table_.id; }

bool Arena::contains(const void* data) const {
  const auto* const byte = static_cast<const std::byte*>(data);
  return byte >= base_ && byte < base_ + reserved_;
}

void Arena::set_max_bytes(std::size_t max_bytes) {
  table_.max_bytes = std::min(max_bytes, reserved_ - sizeof(Table));
  if (resident_bytes() <= table_.max_bytes) return;
  const std::optional<std::uint32_t> me = owner();
  while (me && resident_bytes() > table_.max_bytes && evict_one(*me)) {
  }
}

void Arena::count_wait() { ++table_.waits; }

SlotWord Arena::word(std::uint32_t slot) const { return unpack(table_.slots[slot].word); }

Arena::Extent Arena::extent(std::uint32_t slot) const {
  return Extent::of(table_.slots[slot].extent);
}

// Slots are made in order and stay for ever, so a number that was right once can only be too small.
std::uint32_t Arena::count() const {
  std::uint32_t count = count_.load(std::memory_order_relaxed);
  while (count < kSlots && table_.slots[count].extent != 0) ++count;
  count_.store(count, std::memory_order_relaxed);
  return count;
}

// Makes `function` of the slot's word the new word; false where it allows no change. `before`, if
// not null, gets the old one.
template <typename Function>
bool Arena::change(std::uint32_t slot, SlotWord* before, Function&& function) {
  std::atomic<std::uint64_t>& word = table_.slots[slot].word;
  std::uint64_t expected = word;
  while (true) {
    const SlotWord old = unpack(expected);
    const Change changed = function(old);
    if (!changed) return false;
    if (word.compare_exchange_weak(expected, pack(*changed))) {
      if (before != nullptr) *before = old;
      return true;
    }
  }
}

// This process's owner number, or nothing if all are taken by processes that live.
std::optional<std::uint32_t> Arena::owner() {
  const std::uint64_t depth = fork_depth();
  std::uint64_t known = registration_.load(std::memory_order_acquire);
  const auto is_registered = [&] { return known >> 32 == depth && (known & 0xffffffff) != 0; };
  if (is_registered()) return (known & 0xffffffff) - 1;

  const ProcessIdentity me = this_process();
  if (me == 0) return {};
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < kOwners; ++i) {
      ProcessIdentity nobody = 0;
      if (!table_.owners[i].compare_exchange_strong(nobody, me)) continue;
      if (registration_.compare_exchange_strong(known, depth << 32 | (i + 1))) return i;
      // Another thread was faster. With two numbers, this process could not send what it claimed.
      table_.owners[i] = 0;
      if (is_registered()) return (known & 0xffffffff) - 1;
    }
    sweep_the_gone();
  }
  return {};
}

std::uint64_t Arena::resident_bytes() const {
  std::uint64_t bytes = 0;
  const std::uint32_t slots = count();
  for (std::uint32_t i = 0; i < slots; ++i) {
    if (word(i).takes_memory()) bytes += extent(i).capacity();
  }
  return bytes;
}

std::byte* Arena::data_of(std::uint32_t slot) const { return base_ + extent(slot).offset; }

std::optional<SlotHold> Arena::claim(std::size_t bytes) {
  if (bytes > kLargestRequest) return {};
  const std::optional<std::uint32_t> me = owner();
  if (!me) return {};
  auto hold = claim_resident(bytes, 2 * bytes, *me);
  // Before memory is added, take back what nobody uses.
  if (!hold && sweep_the_gone() > 0) hold = claim_resident(bytes, 2 * bytes, *me);
  if (!hold) hold = grow(bytes, *me);
  // Free slots that are much larger, and can't give their memory back.
  if (!hold) hold = claim_resident(bytes, kLargestRequest, *me);
  return hold;
}

// A free slot that has memory. Those that this process had last are mapped in it already, and among
// these the first ones are used most, so that a steady state touches as little memory as it can.
std::optional<SlotHold> Arena::claim_resident(std::size_t bytes, std::size_t most,
                                              std::uint32_t owner) {
  const std::uint32_t smallest = size_class_of(bytes, page_bytes());
  const std::uint32_t largest = std::max(smallest, size_class_of(most, page_bytes()));
  const std::uint32_t slots = count();
  for (const bool mine : {true, false}) {
    for (std::uint32_t i = 0; i < slots; ++i) {
      const SlotWord seen = word(i);
      if (!seen.free() || !seen.resident || (mine && seen.owner != owner)) continue;
      const std::uint32_t size_class = extent(i).size_class;
      if (size_class < smallest || size_class > largest) continue;
      SlotWord before;
      const bool claimed = change(i, &before, [&](const SlotWord& slot) {
        return slot.resident ? runtime::claim(slot, owner) : Change();
      });
      if (claimed) return begin_use(i, before.generation + 1, bytes);
    }
  }
  return {};
}

// A free slot without memory, of the size that fits.
std::optional<std::uint32_t> Arena::claim_empty(std::size_t bytes, std::uint32_t owner) {
  const std::uint32_t size_class = size_class_of(bytes, page_bytes());
  const std::uint32_t slots = count();
  for (std::uint32_t i = 0; i < slots; ++i) {
    if (extent(i).size_class != size_class) continue;
    const bool claimed = change(i, nullptr, [&](const SlotWord& slot) {
      return slot.resident ? Change() : runtime::claim(slot, owner);
    });
    if (claimed) return i;
  }
  return {};
}

// The smallest free slot without memory that fits, when no slot can be made any more.
std::optional<std::uint32_t> Arena::claim_larger(std::size_t bytes, std::uint32_t owner) {
  const std::uint32_t slots = count();
  while (true) {
    std::optional<std::uint32_t> best;
    for (std::uint32_t i = 0; i < slots; ++i) {
      const SlotWord seen = word(i);
      if (!seen.free() || seen.resident || extent(i).capacity() < bytes) continue;
      if (!best || extent(i).size_class < extent(*best).size_class) best = i;
    }
    if (!best) return {};
    const bool claimed = change(*best, nullptr, [&](const SlotWord& slot) {
      return slot.resident ? Change() : runtime::claim(slot, owner);
    });
    if (claimed) return best;
  }
}

// Adds a slot's memory to the arena, within the limit. Whoever claims first counts afterwards, and
// gives up what is too much: so the limit holds whatever others do meanwhile.
std::optional<SlotHold> Arena::grow(std::size_t bytes, std::uint32_t owner) {
  std::size_t capacity = capacity_of(size_class_of(bytes, page_bytes()), page_bytes());
  while (true) {
    while (resident_bytes() + capacity > table_.max_bytes) {
      if (!evict_one(owner)) return {};
    }
    // A slot is made only if there is room for it, none was free and none was made meanwhile: or
    // the slots would spread further than the limit whenever two processes want the last one at
    // once.
    const std::uint32_t made = count();
    auto slot = claim_empty(bytes, owner);
    if (!slot && resident_bytes() + capacity > table_.max_bytes) continue;
    if (!slot && make_slot(made, bytes)) continue;
    if (!slot) slot = claim_larger(bytes, owner);
    if (!slot) return {};
    const std::uint64_t resident = resident_bytes();
    const bool fits = resident <= table_.max_bytes;
    if (fits && fill(*slot, owner)) {
      ++table_.grows;
      std::uint64_t highest = table_.high_water;
      while (highest < resident && !table_.high_water.compare_exchange_weak(highest, resident)) {
      }
      return begin_use(*slot, word(*slot).generation, bytes);
    }
    change(*slot, nullptr, runtime::drop_held);
    if (fits) return {};  // the system has no more
    capacity = extent(*slot).capacity();
  }
}

// Takes memory for all of a slot that this process holds. False if the system gives none.
bool Arena::fill(std::uint32_t slot, std::uint32_t owner) {
  const Extent place = extent(slot);
  // The user's code may have closed all files, and opened others under their numbers.
  if (FileIdentity::of(descriptor_) != file_) {
    table_.shortage = EBADF;
    return false;
  }
  if (!take_memory(descriptor_, place.offset, place.capacity())) {
    table_.shortage = errno;
    const GivingBack giving_back(table_, owner);
    if (giving_back.allows(place.offset)) punch(base_ + place.offset, place.capacity());
    return false;
  }
  ++table_.slots[slot].fills;
  change(slot, nullptr, runtime::fill);
  return true;
}

// Makes the slot of this number, unless somebody else just did. False if the table or the reserved
// addresses are full.
bool Arena::make_slot(std::uint32_t slot, std::size_t bytes) {
  if (slot == kSlots) return false;
  const Extent made{slot == 0 ? first_slot() : end_of(slot - 1),
                    size_class_of(bytes, page_bytes())};
  if (made.capacity() > reserved_ || made.offset > reserved_ - made.capacity()) return false;
  std::uint64_t none = 0;
  table_.slots[slot].extent.compare_exchange_strong(none, made.packed());
  return true;
}

// Gives the memory of a slot back to the system if it is free, and of this generation where one is
// named. A process that is killed on the way leaves memory that is not counted until the slot is
// filled again.
bool Arena::give_back(std::uint32_t slot, std::optional<std::uint32_t> generation,
                      std::uint32_t owner) {
  const GivingBack giving_back(table_, owner);
  const Extent place = extent(slot);
  if (!giving_back.allows(place.offset)) return false;
  const bool claimed = change(slot, nullptr, [&](const SlotWord& word) {
    const bool wanted = word.resident && (!generation || word.generation == *generation);
    return wanted ? runtime::claim(word, owner) : Change();
  });
  if (!claimed) return false;
  change(slot, nullptr, runtime::empty);
  const bool gone = punch(base_ + place.offset, place.capacity());
  if (!gone) change(slot, nullptr, runtime::fill);
  change(slot, nullptr, runtime::drop_held);
  return gone;
}

// Gives the memory of any free slot back. False if no free slot has any to give.
bool Arena::evict_one(std::uint32_t owner) {
  const std::uint32_t slots = count();
  for (std::uint32_t i = 0; i < slots; ++i) {
    const SlotWord seen = word(i);
    if (seen.free() && seen.resident && give_back(i, {}, owner)) return true;
  }
  return false;
}

// Pages that this process has not mapped yet are mapped in one go, which takes a fraction of the
// time of as many faults. Only advice: whatever is missing is mapped when it is touched.
SlotHold Arena::begin_use(std::uint32_t slot, std::uint32_t generation, std::size_t bytes) {
  std::byte* const data = data_of(slot);
#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
  const std::uint64_t fills = table_.slots[slot].fills;
  const std::uint64_t mark = (std::uint64_t{fork_depth()} + 1) << 16 | (fills & 0xffff);
  const std::uint64_t pages = whole_pages(bytes, page_bytes()) / page_bytes();
  const std::uint64_t known = populated_[slot].load(std::memory_order_relaxed);
  if (bytes >= kWorthPopulating && (known >> 32 != mark || (known & 0xffffffff) < pages)) {
    madvise(data, pages * page_bytes(), MADV_POPULATE_WRITE);
    populated_[slot].store(mark << 32 | pages, std::memory_order_relaxed);
  }
#endif
  return {slot, generation, data};
}

void Arena::drop_held(const SlotHold& hold) noexcept {
  change(hold.slot, nullptr, [&](const SlotWord& slot) {
    return slot.generation == hold.generation ? runtime::drop_held(slot) : Change();
  });
}

std::optional<SlotMessage> Arena::send(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::uint32_t slots = count();
  if (!contains(data) || slots == 0 || begin < data_of(0)) return {};
  // The last slot that does not begin after the data: offsets ascend.
  std::uint32_t slot = 0;
  for (std::uint32_t step = std::bit_floor(slots); step > 0; step /= 2) {
    if (slot + step < slots && data_of(slot + step) <= begin) slot += step;
  }
  const std::size_t offset = begin - data_of(slot);
  const std::size_t capacity = extent(slot).capacity();
  if (offset > capacity || bytes > capacity - offset) return {};

  const std::optional<std::uint32_t> me = owner();
  SlotWord before;
  const bool sent = change(slot, &before, [&](const SlotWord& word) {
    return word.owner == me ? runtime::send(word) : Change();
  });
  if (!sent) return {};
  return SlotMessage{slot, before.generation, offset};
}

bool Arena::has_unread_messages() const {
  const std::uint64_t known = registration_.load(std::memory_order_acquire);
  if (known >> 32 != fork_depth() || (known & 0xffffffff) == 0) return false;
  const std::uint32_t slots = count();
  for (std::uint32_t i = 0; i < slots; ++i) {
    const SlotWord slot = word(i);
    if (slot.sent > 0 && slot.owner == (known & 0xffffffff) - 1) return true;
  }
  return false;
}

std::optional<SlotHold> Arena::receive(const SlotMessage& message, std::size_t bytes) {
  if (message.slot >= count()) return {};
  const std::size_t capacity = extent(message.slot).capacity();
  if (message.offset > capacity || bytes > capacity - message.offset) return {};
  const bool taken = change(message.slot, nullptr, [&](const SlotWord& slot) {
    return runtime::receive(slot, message.generation);
  });
  if (!taken) return {};
  if (!reaper_exists_.load(std::memory_order_relaxed)) start_reaper();
  SlotHold hold = begin_use(message.slot, message.generation, message.offset + bytes);
  hold.data += message.offset;
  return hold;
}

void Arena::drop_taken(const SlotHold& hold) noexcept {
  change(hold.slot, nullptr, [](const SlotWord& slot) { return runtime::drop_taken(slot); });
}

void Arena::release_taken(const SlotHold& hold) noexcept {
  if (extent(hold.slot).offset < table_.kept_until) {
    released_.push(hold.slot);
  } else {
    drop_taken(hold);
  }
}

std::size_t Arena::first_slot() const { return whole_pages(sizeof(Table), page_bytes()); }

std::size_t Arena::end_of(std::uint32_t slot) const {
  return extent(slot).offset + extent(slot).capacity();
}

std::size_t Arena::end_of_slots() const {
  const std::uint32_t slots = count();
  return slots == 0 ? first_slot() : end_of(slots - 1);
}

std::size_t Arena::kept_until() const { return table_.kept_until; }

bool Arena::keep(std::size_t end) {
  table_.kept_until = end;
  const auto nobody_gives = [&] {
    return std::ranges::all_of(table_.giving_back, [](const auto& times) { return times == 0; });
  };
  return nobody_gives() || (sweep_the_gone() > 0 && nobody_gives());
}

std::size_t Arena::sweep_the_gone() {
  const ProcessIdentity me = this_process();
  if (me == 0) return 0;
  ProcessIdentity sweeper = table_.sweeper;
  if (sweeper != 0 && !is_gone(sweeper)) return 0;
  if (!table_.sweeper.compare_exchange_strong(sweeper, me)) return 0;

  // Only the sweeper frees entries of others, so none of them changes hands under its eyes.
  std::size_t gone = 0;
  for (std::uint32_t owner = 0; owner < kOwners; ++owner) {
    const ProcessIdentity process = table_.owners[owner];
    if (process == 0 || process == me || !is_gone(process)) continue;
    const std::uint32_t slots = count();
    for (std::uint32_t i = 0; i < slots; ++i) {
      change(i, nullptr, [&](const SlotWord& slot) { return runtime::sweep(slot, owner); });
    }
    table_.giving_back[owner] = 0;
    table_.owners[owner] = 0;
    ++gone;
  }
  table_.sweeper = 0;
  return gone;
}

Arena::Stats Arena::stats() const {
  Stats stats{};
  stats.slots = count();
  for (std::uint32_t i = 0; i < stats.slots; ++i) {
    const SlotWord slot = word(i);
    if (slot.takes_memory()) stats.resident_bytes += extent(i).capacity();
    if (slot.free()) continue;
    ++stats.live_slots;
    stats.live_bytes += extent(i).capacity();
  }
  stats.high_water = table_.high_water;
  stats.max_bytes = table_.max_bytes;
  stats.grows = table_.grows;
  stats.waits = table_.waits;
  stats.shortage = static_cast<int>(table_.shortage);
  const ProcessIdentity me = this_process();
  stats.others = std::ranges::count_if(
      table_.owners, [&](const auto& owner) { return owner != 0 && owner != me; });
  return stats;
}

}  // namespace pinfeed::runtime
