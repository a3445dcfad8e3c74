// Pixels to planes and back in portable loops: the definition, and the tail of wider code.
#pragma once

#include <cstddef>
#include <cstring>

namespace pinfeed::kernels {

template <std::size_t Item, std::size_t Channels>
void deinterleave_scalar(const std::byte* pixels, std::size_t count, std::byte* planes,
                         std::ptrdiff_t plane_stride) {
  for (std::size_t c = 0; c < Channels; ++c, planes += plane_stride) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(planes + i * Item, pixels + (i * Channels + c) * Item, Item);
    }
  }
}

template <std::size_t Item, std::size_t Channels>
void interleave_scalar(const std::byte* planes, std::ptrdiff_t plane_stride, std::size_t count,
                       std::byte* pixels) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* plane = planes + i * Item;
    for (std::size_t c = 0; c < Channels; ++c, plane += plane_stride) {
      std::memcpy(pixels + (i * Channels + c) * Item, plane, Item);
    }
  }
}

}  // namespace pinfeed::kernels
