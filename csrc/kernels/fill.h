// Writes one value many times.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/copy.h"
#include "kernels/item.h"

namespace pinfeed::kernels {

// An item of 1, 2, 4, 8 or 16 bytes, in its representation in memory.
class Fill {
 public:
  Fill() = default;                                                // a byte of 0
  explicit Fill(std::size_t item_size) : item_size_(item_size) {}  // zeros
  Fill(const void* item, std::size_t item_size);
  explicit Fill(const Item& item) : Fill(item.bytes.data(), static_cast<std::size_t>(item.size)) {}

  std::size_t item_size() const { return item_size_; }

  // Writes `items` items to `out`, which need not be aligned. `streaming` as for copy_bytes.
  void write(void* out, std::size_t items, bool streaming) const;

 private:
  std::size_t item_size_ = 1;
  bool one_byte_ = true;                     // every byte of the item is the same
  std::array<std::byte, 2 * kLine> line_{};  // the item, repeated
};

}  // namespace pinfeed::kernels
