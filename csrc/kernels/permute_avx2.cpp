// Pixels to planes and back with byte shuffles (a part of AVX2's machines since SSSE3).
#include <cstdint>

#include "kernels/copy.h"
#include "kernels/image_avx2.h"
#include "kernels/permute_runs.h"

namespace pinfeed::kernels {
namespace {

constexpr int kVector = 16;

template <int Item, int Channels>
inline constexpr auto kItemInterleave = make_shuffles<Channels>([](int byte) {
  const int item = byte / Item;
  return item % Channels * kVector + item / Channels * Item + byte % Item;
});

// One plane's vector of a block.
template <int Item, int Channels, int Plane>
PINFEED_AVX2_INLINE __m128i plane_vector(const std::byte* pixels) {
  __m128i in[Channels];
  for (int from = 0; from < Channels; ++from) in[from] = load16(pixels + kVector * from);
  return shuffled<kDeinterleave<Item, Channels, false>, Plane>(
      in, std::make_integer_sequence<int, Channels>{});
}

template <int Item, int Channels, int Plane>
PINFEED_AVX2_INLINE void stream_plane_line(const std::byte* pixels, std::byte* out) {
  for (std::size_t byte = 0; byte < kLine; byte += kVector) {
    store16<true>(out + byte, plane_vector<Item, Channels, Plane>(pixels + byte * Channels));
  }
}

// Whole cache lines, one plane after another, because a core has few buffers for incomplete lines
// of streaming stores.
template <int Item, int Channels, int... Planes>
PINFEED_AVX2 void stream_planes(const std::byte* pixels, std::size_t lines, std::byte* planes,
                                std::ptrdiff_t plane_stride,
                                std::integer_sequence<int, Planes...>) {
  for (std::size_t line = 0; line < lines; ++line) {
    (stream_plane_line<Item, Channels, Planes>(pixels, planes + Planes * plane_stride), ...);
    pixels += kLine * Channels;
    planes += kLine;
  }
}

template <int Item, int Channels>
PINFEED_AVX2 void interleave_blocks(const std::byte* planes, std::ptrdiff_t plane_stride,
                                    std::size_t blocks, std::byte* pixels) {
  for (std::size_t block = 0; block < blocks; ++block) {
    __m128i in[Channels];
    for (int from = 0; from < Channels; ++from) in[from] = load16(planes + from * plane_stride);
    store_shuffled<kItemInterleave<Item, Channels>, false>(
        in, reinterpret_cast<std::uint8_t*>(pixels), kVector,
        std::make_integer_sequence<int, Channels>{});
    planes += kVector;
    pixels += kVector * Channels;
  }
}

// Note [Streams between vectors]
// A streaming store wants an address that is a multiple of its size, and pixels may begin anywhere.
// So each store takes the end of one vector and the beginning of the next.
template <int Item, int Channels, int... To>
PINFEED_AVX2 void stream_pixels(const std::byte* planes, std::ptrdiff_t plane_stride,
                                std::size_t blocks, std::byte* pixels, std::byte* first,
                                std::byte* last, std::integer_sequence<int, To...> all) {
  const int skipped = static_cast<int>((first - pixels) % kVector);
  alignas(kVector) std::int8_t end_bytes[kVector], begin_bytes[kVector];
  for (int byte = 0; byte < kVector; ++byte) {
    const int from = byte + skipped;
    end_bytes[byte] = static_cast<std::int8_t>(from < kVector ? from : -1);
    begin_bytes[byte] = static_cast<std::int8_t>(from < kVector ? -1 : from - kVector);
  }
  const __m128i end_of = load16(end_bytes), begin_of = load16(begin_bytes);
  __m128i before = _mm_setzero_si128();
  std::byte* to = pixels + skipped - kVector;
  const auto write = [&](__m128i vector) PINFEED_AVX2 {
    if (to >= first && to < last) {
      store16<true>(
          to, _mm_or_si128(_mm_shuffle_epi8(before, end_of), _mm_shuffle_epi8(vector, begin_of)));
    }
    before = vector;
    to += kVector;
  };
  for (std::size_t block = 0; block < blocks; ++block) {
    __m128i in[Channels];
    for (int from = 0; from < Channels; ++from) in[from] = load16(planes + from * plane_stride);
    (write(shuffled<kItemInterleave<Item, Channels>, To>(in, all)), ...);
    planes += kVector;
  }
}

struct Avx2Permute {
  template <std::size_t Item, std::size_t Channels>
  static void deinterleave(const std::byte* pixels, std::size_t count, std::byte* planes,
                           std::ptrdiff_t plane_stride, bool streaming) {
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(planes) % kLine;
    if (streaming && head % Item == 0 && count * Item >= head + kLine &&
        plane_stride % static_cast<std::ptrdiff_t>(kLine) == 0) {
      const std::size_t lines = (count * Item - head) / kLine;
      const std::size_t begin = head / Item, end = begin + lines * kLine / Item;
      deinterleave<Item, Channels>(pixels, begin, planes, plane_stride, false);
      stream_planes<Item, Channels>(pixels + begin * Item * Channels, lines, planes + head,
                                    plane_stride, std::make_integer_sequence<int, Channels>{});
      deinterleave<Item, Channels>(pixels + end * Item * Channels, count - end, planes + end * Item,
                                   plane_stride, false);
      return;
    }
    if (count * Item < kVector) {
      return deinterleave_scalar<Item, Channels>(pixels, count, planes, plane_stride);
    }
    constexpr auto split = deinterleave_blocks<Item, Channels, Channels, false, false>;
    split(pixels, count * Item / kVector, planes, plane_stride);
    const std::size_t last = count * Item - kVector;  // it may overlap the block before it
    split(pixels + last * Channels, 1, planes + last, plane_stride);
  }

  template <std::size_t Item, std::size_t Channels>
  static void interleave(const std::byte* planes, std::ptrdiff_t plane_stride, std::size_t count,
                         std::byte* pixels, bool streaming) {
    constexpr std::size_t pixel = Item * Channels;
    const std::size_t blocks = count * Item / kVector, done = blocks * kVector * Channels;
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(pixels) % kLine;
    if (streaming && done >= head + kLine + kVector) {
      const std::size_t tail = head + (done - kVector - head) / kLine * kLine;
      stream_pixels<Item, Channels>(planes, plane_stride, blocks, pixels, pixels + head,
                                    pixels + tail, std::make_integer_sequence<int, Channels>{});
      const auto ordinary = [&](std::size_t begin, std::size_t end) {  // bytes of the pixels
        const std::size_t first = begin / pixel, last = (end + pixel - 1) / pixel;
        std::byte whole[4 * kLine];
        interleave_scalar<Item, Channels>(planes + first * Item, plane_stride, last - first, whole);
        std::memcpy(pixels + begin, whole + (begin - first * pixel), end - begin);
      };
      ordinary(0, head);
      ordinary(tail, count * pixel);
      return;
    }
    if (blocks == 0) {
      return interleave_scalar<Item, Channels>(planes, plane_stride, count, pixels);
    }
    interleave_blocks<Item, Channels>(planes, plane_stride, blocks, pixels);
    const std::size_t last = count * Item - kVector;  // it may overlap the block before it
    interleave_blocks<Item, Channels>(planes + last, plane_stride, 1, pixels + last * Channels);
  }

  PINFEED_AVX2 static void replace(const std::byte* from, std::size_t count, std::int64_t value,
                                   std::int64_t by, std::byte* to) {
    replace_items(from, count, value, by, to);
  }
};

}  // namespace

constexpr PermuteRuns kPermuteAvx2 = make_permute_runs<Avx2Permute>();

}  // namespace pinfeed::kernels
