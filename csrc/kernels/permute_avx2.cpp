// Pixels to planes and back with byte shuffles (a part of AVX2's machines since SSSE3).
#include <cstdint>

#include "kernels/image_avx2.h"
#include "kernels/permute_runs.h"
#include "kernels/permute_scalar.h"

namespace pinfeed::kernels {
namespace {

constexpr int kVector = 16;

// Planes from pixels: byte b of plane c is byte b % Item of item c of pixel b / Item.
template <int Item, int Channels>
inline constexpr auto kItemDeinterleave = make_shuffles<Channels>([](int byte) {
  const int plane = byte / kVector, pixel = byte % kVector / Item;
  return (pixel * Channels + plane) * Item + byte % Item;
});

template <int Item, int Channels>
inline constexpr auto kItemInterleave = make_shuffles<Channels>([](int byte) {
  const int item = byte / Item;
  return item % Channels * kVector + item / Channels * Item + byte % Item;
});

bool aligned(const std::byte* address, std::ptrdiff_t stride) {
  return reinterpret_cast<std::uintptr_t>(address) % kVector == 0 && stride % kVector == 0;
}

template <int Item, int Channels, bool Streaming>
PINFEED_AVX2 void deinterleave_blocks(const std::byte* pixels, std::size_t blocks,
                                      std::byte* planes, std::ptrdiff_t plane_stride) {
  for (std::size_t block = 0; block < blocks; ++block) {
    __m128i in[Channels];
    for (int from = 0; from < Channels; ++from) in[from] = load16(pixels + kVector * from);
    store_shuffled<kItemDeinterleave<Item, Channels>, Streaming>(
        in, reinterpret_cast<std::uint8_t*>(planes), plane_stride,
        std::make_integer_sequence<int, Channels>{});
    pixels += kVector * Channels;
    planes += kVector;
  }
}

template <int Item, int Channels, bool Streaming>
PINFEED_AVX2 void interleave_blocks(const std::byte* planes, std::ptrdiff_t plane_stride,
                                    std::size_t blocks, std::byte* pixels) {
  for (std::size_t block = 0; block < blocks; ++block) {
    __m128i in[Channels];
    for (int from = 0; from < Channels; ++from) in[from] = load16(planes + from * plane_stride);
    store_shuffled<kItemInterleave<Item, Channels>, Streaming>(
        in, reinterpret_cast<std::uint8_t*>(pixels), kVector,
        std::make_integer_sequence<int, Channels>{});
    planes += kVector;
    pixels += kVector * Channels;
  }
}

struct Avx2Permute {
  template <std::size_t Item, std::size_t Channels>
  static void deinterleave(const std::byte* pixels, std::size_t count, std::byte* planes,
                           std::ptrdiff_t plane_stride, bool streaming) {
    const std::size_t blocks = count * Item / kVector, done = blocks * kVector / Item;
    if (streaming && aligned(planes, plane_stride)) {
      deinterleave_blocks<Item, Channels, true>(pixels, blocks, planes, plane_stride);
    } else {
      deinterleave_blocks<Item, Channels, false>(pixels, blocks, planes, plane_stride);
    }
    deinterleave_scalar<Item, Channels>(pixels + done * Item * Channels, count - done,
                                        planes + done * Item, plane_stride);
  }

  template <std::size_t Item, std::size_t Channels>
  static void interleave(const std::byte* planes, std::ptrdiff_t plane_stride, std::size_t count,
                         std::byte* pixels, bool streaming) {
    const std::size_t blocks = count * Item / kVector, done = blocks * kVector / Item;
    if (streaming && aligned(pixels, 0)) {
      interleave_blocks<Item, Channels, true>(planes, plane_stride, blocks, pixels);
    } else {
      interleave_blocks<Item, Channels, false>(planes, plane_stride, blocks, pixels);
    }
    interleave_scalar<Item, Channels>(planes + done * Item, plane_stride, count - done,
                                      pixels + done * Item * Channels);
  }
};

}  // namespace

constexpr PermuteRuns kPermuteAvx2 = make_permute_runs<Avx2Permute>();

}  // namespace pinfeed::kernels
