// Memory that a trainer and its DataLoader workers share: an anonymous file, mapped once by each,
// in which workers write batches and the trainer reads them where they are.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/release_queue.h"
#include "runtime/shared_file.h"
#include "runtime/slot_word.h"

namespace pinfeed::runtime {

// A hold on a slot. The generation tells it from all other uses of the same slot.
struct SlotHold {
  std::uint32_t slot;
  std::uint32_t generation;
  std::byte* data;
};

// What a worker tells the trainer about bytes in a slot.
struct SlotMessage {
  std::uint32_t slot;
  std::uint32_t generation;
  std::size_t offset;  // of the first byte in the slot
};

// Note [Arena]
//
// The file begins with a table: for each slot where it lies (fixed for ever once it is made) and
// its word (see Note [Slot protocol]). Its full size is set when it is created, and each process
// maps all of it once: pages that nobody wrote take no memory, so growing needs no new mapping, no
// system call in other processes and no message. The file is in no folder; it is gone with the last
// process.
//
// A slot's size is one of four to each power of two. A claim looks through the table for a free
// slot of up to the size of twice the request, and prefers one that this worker had before, for its
// pages are mapped here already. Failing that it sweeps what dead processes left, and then makes
// one more slot. The memory of all slots stays below `max_bytes`: at the limit free slots of other
// sizes give theirs back, and if that is not enough the claim fails and the caller waits.
//
// Every process has an owner number while it holds slots; the entry tells which process it is.
// Entries are given back by whoever finds the process gone, one sweeper at a time: the sweeper's
// identity is the lock, so one that was killed has lost it.
//
// Note [Kept memory]
//
// A device driver that has locked pages knows them by where they are in memory, not by address. If
// a page of the file were given back and touched again, processes would see a new page and the
// device the old one. So from the moment that pages are about to be locked, nobody gives any below
// `kept_until` back. Two sides say what they do before they look at the other: the trainer moves
// `kept_until` and then looks whether any process is giving memory back, a process that does counts
// itself and then looks at `kept_until`. One of them sees the other. What a killed process has
// counted is taken away with all else it left.
//
// A device may still read what the trainer has let go: the trainer's tensor dies when a copy has
// been asked for, not when it is done. So slots below `kept_until` wait in a queue until whoever
// locked them says so.
//
// Note [Idle slots]
//
// A thread of the trainer gives the memory of slots back that are not needed any more: those that
// padding made large for a while, and all of them when no loader runs. It costs other threads and
// processes nothing, for the generation in a slot's word tells whether the slot was used since the
// thread looked last. A slot has been free for the timeout (10 s) then, and one of these holds:
//   - no process lives that could claim it;
//   - since it was seen free there were 64 claims, so whatever goes round goes round without it;
//   - six timeouts have passed.
// So a loop of one batch in 15 s, which leaves slots free for as long, finds them with their memory
// again; one of a batch in two minutes has one slot filled anew in each, in the worker.
//
// Objects are never destroyed, for tensors may die at any time until the process is gone.
class Arena {
 public:
  struct Stats {
    std::uint64_t slots;           // ever made
    std::uint64_t live_slots;      // held, sent or taken
    std::uint64_t live_bytes;      // their capacity
    std::uint64_t resident_bytes;  // capacity of all slots with memory
    std::uint64_t high_water;      // the most resident_bytes ever
    std::uint64_t max_bytes;
    std::uint64_t grows;   // times a slot got memory, new or again
    std::uint64_t waits;   // batches that had to wait for room
    std::uint64_t others;  // other processes with an owner number
    int shortage;          // errno of the last time that the system gave no memory, or 0
  };

  // Makes one for this process. Throws std::system_error, and std::runtime_error where the system
  // lacks what an arena needs.
  static Arena& create(std::size_t reserved, std::size_t max_bytes);

  // What the system calls the arena that a process made, in lists of open files.
  static std::string file_name(long process);

  // Maps the arena of another process through a descriptor, of which a copy is kept. Throws as
  // create.
  static Arena& attach(int descriptor);

  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Whether this very process, and not one it was forked from, created it.
  bool is_mine() const;
  int descriptor() const { return descriptor_; }
  std::uint64_t id() const;
  std::size_t reserved() const { return reserved_; }
  bool contains(const void* data) const;

  // Free slots give their memory back if the limit is below what they take.
  void set_max_bytes(std::size_t max_bytes);
  Stats stats() const;
  void count_wait();

  // Gives this process an owner number, or returns false: all of them are taken, or its identity
  // can't be had. Only a process with a number can claim.
  bool join() { return owner().has_value(); }

  // A worker's side. `claim` returns nothing if there is no room; `send` nothing if the bytes are
  // in no slot that this process holds, or too many messages speak of the slot already.
  std::optional<SlotHold> claim(std::size_t bytes);
  void drop_held(const SlotHold& hold) noexcept;
  std::optional<SlotMessage> send(const void* data, std::size_t bytes);
  bool has_unread_messages() const;  // of this process

  // The trainer's side. `receive` returns nothing if the message is stale.
  std::optional<SlotHold> receive(const SlotMessage& message, std::size_t bytes);
  void drop_taken(const SlotHold& hold) noexcept;

  // The same, but slots below `kept_until` are put into `released` instead: a device may be reading
  // them. Whoever takes them from there calls `drop_taken`.
  void release_taken(const SlotHold& hold) noexcept;
  ReleaseQueue& released() { return released_; }

  // Where the mapping and its slots begin, and where a slot ends or the last one, in bytes from the
  // mapping's start.
  std::byte* base() const { return base_; }
  std::size_t first_slot() const;
  std::size_t end_of(std::uint32_t slot) const;
  std::size_t end_of_slots() const;

  // Memory up to this offset is not given back to the system any more, by any process. False if one
  // may just be doing that, so that the range must not be locked yet.
  bool keep(std::size_t end);
  std::size_t kept_until() const;

  // Frees what processes that are gone left behind; returns how many there were.
  std::size_t sweep_the_gone();

  // How long a slot may be free before it gives its memory back; for tests.
  void set_idle_timeout(std::chrono::milliseconds timeout) { idle_timeout_ = timeout; }

 private:
  struct Table;
  struct Extent;
  struct IdleSlots;
  class GivingBack;

  Arena(int descriptor, std::byte* base, std::size_t reserved, bool created);
  ~Arena() = delete;

  static Arena& map(int descriptor, std::size_t reserved, bool created);

  std::optional<std::uint32_t> owner();
  template <typename Function>
  bool change(std::uint32_t slot, SlotWord* before, Function&& function);
  SlotWord word(std::uint32_t slot) const;
  Extent extent(std::uint32_t slot) const;
  std::uint32_t count() const;
  std::optional<SlotHold> claim_resident(std::size_t bytes, std::size_t most, std::uint32_t owner);
  std::optional<std::uint32_t> claim_empty(std::size_t bytes, std::uint32_t owner);
  std::optional<std::uint32_t> claim_larger(std::size_t bytes, std::uint32_t owner);
  std::optional<SlotHold> grow(std::size_t bytes, std::uint32_t owner);
  bool make_slot(std::uint32_t slot, std::size_t bytes);
  bool fill(std::uint32_t slot, std::uint32_t owner);
  bool give_back(std::uint32_t slot, std::optional<std::uint32_t> generation, std::uint32_t owner);
  bool evict_one(std::uint32_t owner);
  static void* reaper_main(void* arena);
  void start_reaper() noexcept;
  bool reap(IdleSlots& idle);
  SlotHold begin_use(std::uint32_t slot, std::uint32_t generation, std::size_t bytes);
  std::uint64_t resident_bytes() const;
  std::byte* data_of(std::uint32_t slot) const;

  const int descriptor_;
  const FileIdentity file_;
  std::byte* const base_;
  Table& table_;
  const std::size_t reserved_;
  const bool created_;
  const std::uint32_t created_at_depth_;
  // Of this process: fork depth in the upper half, owner number + 1 in the lower.
  std::atomic<std::uint64_t> registration_{0};
  mutable std::atomic<std::uint32_t> count_{0};  // slots known to be made
  // For each slot, what this process has mapped of it: fork depth + 1 and fills above, pages below.
  std::atomic<std::uint64_t>* const populated_;
  ReleaseQueue released_;
  std::atomic<std::chrono::milliseconds> idle_timeout_{std::chrono::seconds(10)};
  std::atomic<bool> reaper_exists_{false};
};

}  // namespace pinfeed::runtime
