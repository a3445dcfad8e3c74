#include "kernels/fill.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace pinfeed::kernels {
namespace {

constexpr std::size_t kWorthIt = 4 * kLine;  // fewer bytes are faster through the cache

}  // namespace

Fill::Fill(const void* item, std::size_t item_size) : item_size_(item_size) {
  const auto* bytes = static_cast<const std::byte*>(item);
  std::memcpy(line_.data(), bytes, item_size);
  for (std::size_t done = item_size; done < line_.size(); done *= 2)
    std::memcpy(&line_[done], line_.data(), done);
  one_byte_ = std::all_of(bytes, bytes + item_size, [&](std::byte b) { return b == bytes[0]; });
}

void Fill::write(void* out, std::size_t items, bool streaming) const {
  auto* to = static_cast<std::byte*>(out);
  std::size_t bytes = items * item_size_;
  if (bytes == 0) return;
  if (one_byte_ && !streaming) {
    std::memset(to, static_cast<int>(line_[0]), bytes);
    return;
  }
  const std::byte* line = line_.data();
  if (streaming && bytes >= kWorthIt) {
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
    std::memcpy(to, line, head);
    line += head % item_size_;  // a cache line may begin in the middle of an item
    const std::size_t lines = (bytes - head) / kLine;
    repeat_line(to + head, line, lines);
    to += head + lines * kLine;
    bytes -= head + lines * kLine;
  }
  for (; bytes >= kLine; bytes -= kLine, to += kLine) std::memcpy(to, line, kLine);
  std::memcpy(to, line, bytes);
}

}  // namespace pinfeed::kernels
