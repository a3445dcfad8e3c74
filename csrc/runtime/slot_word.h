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
// Besides, a slot is resident while all its memory is there. Memory is asked for and given back by
// whoever holds the slot: after a claim, `fill` says that it is there now; before any of it goes,
// `empty` says that it can't be counted on. So whenever a holder is killed, a resident slot can be
// written without a fault, and any other one is filled before it is used.
//
// Three rules make it safe.
//   1. A message carries the generation that it was sent under. A claim begins a new one, and a
//      slot can be claimed only when nobody holds, sent or took it. Hence a message whose
//      generation is the word's, and which the word still counts as sent, speaks of bytes that
//      nobody wrote since; any other message is refused. (A generation returns after 2^32 claims of
//      one slot.)
//   2. Only a slot that is held has memory given back, and it is held under a generation of its
//   own:
//      whoever saw it free before, and no message, can hold it too.
//   3. Whatever a worker left behind, held or sent, belongs to its owner number, and is swept as a
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
  bool resident = false;  // has all its memory

  constexpr bool free() const { return !held && sent == 0 && taken == 0; }
  // Whether it counts towards the arena's limit: memory is there, is coming, or on its way out.
  constexpr bool takes_memory() const { return resident || held; }
  bool operator==(const SlotWord&) const = default;
};

inline constexpr std::uint32_t kOwners = 1024;
// Messages and tensors that may refer to one slot at a time.
inline constexpr std::uint32_t kMostReferences = 1000;

// generation: 32 bits, owner: 10, resident, held: 1 each, sent: 10, taken: 10
constexpr std::uint64_t pack(const SlotWord& slot) {
  return std::uint64_t{slot.generation} << 32 | std::uint64_t{slot.owner} << 22 |
         std::uint64_t{slot.resident} << 21 | std::uint64_t{slot.held} << 20 |
         std::uint64_t{slot.sent} << 10 | std::uint64_t{slot.taken};
}

constexpr SlotWord unpack(std::uint64_t word) {
  return {.generation = static_cast<std::uint32_t>(word >> 32),
          .owner = static_cast<std::uint32_t>(word >> 22 & 0x3ff),
          .sent = static_cast<std::uint32_t>(word >> 10 & 0x3ff),
          .taken = static_cast<std::uint32_t>(word & 0x3ff),
          .held = (word >> 20 & 1) != 0,
          .resident = (word >> 21 & 1) != 0};
}

// Each returns the state after, or nothing where the change is not allowed.
using Change = std::optional<SlotWord>;

// A process takes a free slot, with or without memory.
constexpr Change claim(SlotWord slot, std::uint32_t owner) {
  if (!slot.free()) return {};
  ++slot.generation;
  slot.owner = owner;
  slot.held = true;
  return slot;
}

// All memory of a slot that is held is there.
constexpr Change fill(SlotWord slot) {
  if (!slot.held || slot.resident) return {};
  slot.resident = true;
  return slot;
}

// Memory of a slot that is held, and that nobody else has to do with, is about to go.
constexpr Change empty(SlotWord slot) {
  if (!slot.held || !slot.resident || slot.sent > 0 || slot.taken > 0) return {};
  slot.resident = false;
  return slot;
}

// The holder gives its slot up again.
constexpr Change drop_held(SlotWord slot) {
  if (!slot.held) return {};
  slot.held = false;
  return slot;
}

// The worker, which holds the slot, sends a message about it.
constexpr Change send(SlotWord slot) {
  if (!slot.held || !slot.resident || slot.sent + slot.taken >= kMostReferences) return {};
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
