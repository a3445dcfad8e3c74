// Memory that detects accesses beyond its bounds, for inputs and outputs of kernels.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>
#include <span>
#include <vector>

namespace pinfeed::tests {

// Random bytes between two protected pages: reading one byte beyond them ends the process.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t min_size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = (min_size + page - 1) / page * page;
    mapped_ = size_ + 2 * page;
    void* const mapping = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::uint8_t*>(mapping);
    if (mprotect(mapping_ + page, size_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    begin_ = mapping_ + page;
    std::mt19937_64 random(size_);
    std::generate(begin_, begin_ + size_, [&] { return static_cast<std::uint8_t>(random()); });
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(mapping_, mapped_); }

  std::uint8_t* begin() const { return begin_; }
  std::uint8_t* end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }

  // An address from which the bytes [lowest, highest] are readable, lowest <= 0 <= highest: in turn
  // at the very end, at the very beginning and between.
  template <class Random>
  std::uint8_t* place(std::ptrdiff_t lowest, std::ptrdiff_t highest, Random& random) const {
    const auto bytes = static_cast<std::size_t>(highest - lowest) + 1;
    if (bytes > size_) throw std::bad_alloc();
    const std::size_t spare = size_ - bytes;
    const std::size_t where = random() % 3;
    return begin_ - lowest + (where == 0 ? spare : where == 1 ? 0 : random() % (spare + 1));
  }

  // The same for the first item of an array with strides in bytes. Without items, it is at the end.
  template <class Random>
  std::uint8_t* place(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                      std::size_t item_size, Random& random) const {
    std::ptrdiff_t lowest = 0, highest = static_cast<std::ptrdiff_t>(item_size) - 1;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 0) return end();
      const std::ptrdiff_t last = (shape[axis] - 1) * strides[axis];
      (last < 0 ? lowest : highest) += last;
    }
    return place(lowest, highest, random);
  }

 private:
  std::uint8_t* mapping_;
  std::uint8_t* begin_;
  std::size_t mapped_;
  std::size_t size_;
};

// Memory for the sources of all tests.
inline const GuardedBytes& source_memory() {
  static const GuardedBytes memory(std::size_t{4} << 20);
  return memory;
}

// An output `misalignment` bytes after the beginning of a cache line, filled with a pattern, like
// the bytes around it, so that stray writes show.
class MarkedOutput {
 public:
  static constexpr std::byte kMark{0xa5};

  MarkedOutput(std::size_t bytes, std::size_t misalignment)
      : bytes_(bytes), storage_(bytes + kLine + misalignment + 2 * kMargin, kMark) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    offset_ = kMargin + static_cast<std::size_t>(-address % kLine) + misalignment;
  }

  std::byte* data() { return storage_.data() + offset_; }

  bool equals(const std::vector<std::byte>& expected) const {
    const auto out = storage_.begin() + static_cast<std::ptrdiff_t>(offset_);
    const auto out_end = out + static_cast<std::ptrdiff_t>(bytes_);
    const auto marked = [](std::byte byte) { return byte == kMark; };
    return expected.size() == bytes_ && std::equal(out, out_end, expected.begin()) &&
           std::all_of(storage_.begin(), out, marked) &&
           std::all_of(out_end, storage_.end(), marked);
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kMargin = 192;

  std::size_t bytes_;
  std::size_t offset_;
  std::vector<std::byte> storage_;
};

}  // namespace pinfeed::tests
