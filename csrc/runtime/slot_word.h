// The whole state of one slot of an arena in one 64-bit word, and the only ways it may change.
//
// Note [Slot protocol]
//
// A slot of shared memory is used by three kinds of holders, in different processes:
//   held    the worker that owns the slot has a tensor in it, or had when it was killed;
//   sent    messages that speak of the slot are on their way from that worker to the trainer;
//   taken   tensors of the trainer view the slot.
// The slot is free when there is none of them. Every change is one compare-and-swap of the word to
// what a function below makes of it, and the functions look at nothing but the word: so a process
// that is killed between any two instructions leaves every slot in a state that is good by itself,
// there is no lock to be left behind, and a word that changed back in between does no harm.
//
//                claim            send                 receive          drop_taken
//     free ─────────────▶ held ─────────▶ held + sent ─────────▶ taken ─────────────▶ free
//                           │ drop_held       │ drop_held, drop_taken: in any order
//
// Two rules make it safe.
//   1. A message carries the generation that it was sent under. A claim begins a new one, and a
//      slot can be claimed only when nobody holds, sent or took it. Hence a message whose
//      generation is the word's, and which the word still counts as sent, speaks of bytes that
//      nobody wrote since; any other message is refused. (A generation returns after 2^32 claims of
//      one slot.)
//   2. Whatever a worker left behind, held or sent, belongs to its owner number, and is swept as a
//      whole when its process is gone. So nothing outlives a worker but what the trainer took.
//
// Why sweeping what was sent loses no batch that a DataLoader would have delivered: a worker ends
// by itself either after its loader has set `done_event`, when nobody reads the queue any more, or
// after the loader has read its last message (the end of an IterableDataset), which comes after all
// others in the pipe. A worker that was killed or interrupted makes its loader raise; if that
// loader happens to read one of its last messages first, the message is refused by rule 1.
//
// tests/slot_model_test.cpp walks through every interleaving of this, with a kill at every step.
#pragma once

#include <cstdint>
#include <optional>

namespace pinfeed::runtime {

struct SlotWord {
  std::uint32_t generation = 0;  // claims so far
  std::uint32_t owner = 0;       // who claimed it last; stays when the slot is free
  std::uint32_t sent = 0;
  std::uint32_t taken = 0;
  bool held = false;
  bool resident = false;  // has memory, which counts towards the arena's limit

  constexpr bool free() const { return !held && sent == 0 && taken == 0; }
  bool operator==(const SlotWord&) const = default;
};

inline constexpr std::uint32_t kOwners = 256;
// Messages and tensors that may refer to one slot at a time.
inline constexpr std::uint32_t kMostReferences = 1000;

// generation: 32 bits, owner: 8, resident, held: 1 each, sent: 10, taken: 10, 2 spare
constexpr std::uint64_t pack(const SlotWord& slot) {
  return std::uint64_t{slot.generation} << 32 | std::uint64_t{slot.owner} << 24 |
         std::uint64_t{slot.resident} << 23 | std::uint64_t{slot.held} << 22 |
         std::uint64_t{slot.sent} << 12 | std::uint64_t{slot.taken} << 2;
}

constexpr SlotWord unpack(std::uint64_t word) {
  return {.generation = static_cast<std::uint32_t>(word >> 32),
          .owner = static_cast<std::uint32_t>(word >> 24 & 0xff),
          .sent = static_cast<std::uint32_t>(word >> 12 & 0x3ff),
          .taken = static_cast<std::uint32_t>(word >> 2 & 0x3ff),
          .held = (word >> 22 & 1) != 0,
          .resident = (word >> 23 & 1) != 0};
}

// Each returns the state after, or nothing where the change is not allowed.
using Change = std::optional<SlotWord>;

// A worker takes a free slot, and will have memory in it.
constexpr Change claim(SlotWord slot, std::uint32_t owner) {
  if (!slot.free()) return {};
  ++slot.generation;
  slot.owner = owner;
  slot.held = slot.resident = true;
  return slot;
}

// The worker gives its slot up again: `resident` says whether it still has memory.
constexpr Change drop_held(SlotWord slot, bool resident) {
  if (!slot.held) return {};
  slot.held = false;
  slot.resident = resident;
  return slot;
}

// The worker, which holds the slot, sends a message about it.
constexpr Change send(SlotWord slot) {
  if (!slot.held || slot.sent + slot.taken >= kMostReferences) return {};
  ++slot.sent;
  return slot;
}

// The trainer makes a tensor of a message that was sent under this generation.
constexpr Change receive(SlotWord slot, std::uint32_t generation) {
  if (slot.generation != generation || slot.sent == 0) return {};
  --slot.sent;
  ++slot.taken;
  return slot;
}

// A tensor of the trainer is dead.
constexpr Change drop_taken(SlotWord slot) {
  if (slot.taken == 0) return {};
  --slot.taken;
  return slot;
}

// The owner's process is gone.
constexpr Change sweep(SlotWord slot, std::uint32_t owner) {
  if (slot.owner != owner || (!slot.held && slot.sent == 0)) return {};
  slot.held = false;
  slot.sent = 0;
  return slot;
}

}  // namespace pinfeed::runtime
