// A slot in a file of shared memory: one process writes arrays in it, and others read them in
// place.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pinfeed::runtime {

// Returns the descriptor of an empty file without a path, which exists until the last process that
// has it ends. Executed programs don't inherit it. Lists of open files show `name`. Throws
// std::system_error where memfd_create is missing or refused.
int create_shared_file(const std::string& name);

// Note [Shared slots]
//
// A DataLoader worker writes an array into a slot, sends messages that refer to it, and releases
// it; the main process receives each message and releases its array some time later. The first page
// of the slot, which both have mapped, counts these events. Every count is changed by one side
// only, and only increases:
//   sent       messages sent                               the writer
//   received   messages that a reader has accepted         readers
//   returned   messages whose array no reader views        readers
// The slot is free when the writer itself holds no array in it and sent equals returned. So no
// array is overwritten while anyone may read it, even if a process is killed at any instruction: a
// count that was not reached keeps the slot in use for good, until its file is freed.
//
// A slot retires when its writer ends, or is found dead. Its memory is freed then, or when the last
// reader releases it. A reader counts a message and then checks whether the slot has retired; the
// retiring process sets the flag and then checks the counts. One of them sees the other, so no
// reader gets memory that is being freed.
class SharedSlot {
 public:
  // Maps a slot of a file with `capacity` bytes of data. Memory of a new slot is reserved first, so
  // that no write can fail later. Both sizes are multiples of `page_bytes`, and the slot takes one
  // page more than its capacity. Throws std::system_error, and std::invalid_argument for a slot
  // beyond the end of the file.
  SharedSlot(int descriptor, std::size_t offset, std::size_t capacity, bool is_new);
  ~SharedSlot();
  SharedSlot(const SharedSlot&) = delete;
  SharedSlot& operator=(const SharedSlot&) = delete;

  static std::size_t page_bytes();

  std::byte* data() const;
  std::size_t capacity() const { return capacity_; }
  std::size_t offset() const { return offset_; }

  // The writer's side. `claim` fails while the slot is in use. `discard` frees the memory of a free
  // slot, which is never used again; false if it is in use.
  bool claim() noexcept;
  void drop() noexcept { held_ = false; }
  void send() noexcept { ++counts().sent; }
  bool discard() noexcept;

  // The reader's side. `receive` fails if the slot has retired. `let_go` does nothing in a forked
  // child, which merely inherited the array.
  bool receive() noexcept;
  void let_go() noexcept;
  std::uint32_t readers() const noexcept { return counts().received - counts().returned; }

  // Retires the slot: no more messages are received.
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
