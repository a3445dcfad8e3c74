// A place in a file of shared memory, in which one process writes arrays and others read them where
// they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pinfeed::runtime {

// Returns the descriptor of an empty file, which is in no folder and gone with the last process
// that has it. Programs that are executed don't inherit it. Lists of open files show `name`. Throws
// std::system_error where memfd_create is missing or refused.
int create_shared_file(const std::string& name);

// Note [Shared slots]
//
// A DataLoader worker writes an array into a slot, sends messages that speak of it, and lets go of
// it; the trainer receives each message and lets go of the array some time later. The first page of
// the slot counts these events, for both have it mapped. Every count has one side that changes it,
// and only upwards:
//   sent       messages on their way or arrived           the writer
//   received   those that a reader has accepted            readers
//   returned   those whose array no reader views any more  readers
// The slot is free when the writer itself holds no array in it and sent equals returned. So no
// array is overwritten while anybody may read it, whoever is killed at whichever instruction: a
// count that was not reached keeps the slot in use for good, and it goes with its file.
//
// A slot retires when its writer ends, or is found dead. Its memory goes back to the system then,
// or when the last reader lets go. Whoever receives a message counts it and then looks whether the
// slot has retired; whoever retires the slot says so and then looks at the counts. One of them sees
// the other, so that no reader gets memory that is on its way out.
class SharedSlot {
 public:
  // Maps a slot of a file with room for `capacity` bytes of data. A new one gets memory first, so
  // that no write can fail later. Both sizes are multiples of `page_bytes`, and the slot takes one
  // page more than its capacity. Throws std::system_error, and std::invalid_argument for a slot
  // that no file has.
  SharedSlot(int descriptor, std::size_t offset, std::size_t capacity, bool is_new);
  ~SharedSlot();
  SharedSlot(const SharedSlot&) = delete;
  SharedSlot& operator=(const SharedSlot&) = delete;

  static std::size_t page_bytes();

  std::byte* data() const;
  std::size_t capacity() const { return capacity_; }
  std::size_t offset() const { return offset_; }

  // The writer's side. `claim` fails while anybody uses the slot. `discard` gives the memory of a
  // free slot back, which is never used again; false if it is not free.
  bool claim() noexcept;
  void drop() noexcept { held_ = false; }
  void send() noexcept { ++counts().sent; }
  bool discard() noexcept;

  // A reader's side. `receive` fails if the slot has retired. `let_go` does nothing in a forked
  // child, which merely inherited the array.
  bool receive() noexcept;
  void let_go() noexcept;
  std::uint32_t readers() const noexcept { return counts().received - counts().returned; }

  // No message is received any more.
  void retire() noexcept;

 private:
  struct Counts {
    std::atomic<std::uint32_t> sent, received, returned, retired;
  };

  Counts& counts() const { return *reinterpret_cast<Counts*>(mapping_); }
  void give_back_unread() noexcept;

  const std::size_t offset_, capacity_;
  const long process_;
  std::byte* mapping_;
  std::atomic<bool> held_{false};  // by the writer's own array
};

}  // namespace pinfeed::runtime
