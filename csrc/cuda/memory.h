// Loads and stores of whole words, aligned or unaligned.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "cuda/portable.h"

namespace pinfeed::cuda {

inline constexpr int kVectorBytes = 16;  // bytes of a thread's widest load and store

// 4, 8 or 16 bytes, loaded from and stored to multiples of their size.
template <int kCount>
struct Words {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  std::uint32_t at[kCount];
};
using Vector = Words<4>;

PINFEED_BOTH unsigned misalignment(const void* pointer, unsigned size) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(pointer) & (size - 1));
}

#if !defined(__CUDA_ARCH__)
// A device raises an error for such an access.
inline void require_aligned(const void* pointer, unsigned size) {
  if (misalignment(pointer, size) != 0) throw std::logic_error("a misaligned access");
}
#endif

// A launch never writes its inputs, so loads may use the read-only cache.
PINFEED_BOTH std::uint32_t load_byte(const std::uint8_t* from) {
#if defined(__CUDA_ARCH__)
  return __ldg(from);
#else
  return *from;
#endif
}

PINFEED_BOTH std::int64_t load_int64(const std::int64_t* from) {
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const long long*>(from));
#else
  require_aligned(from, 8);
  return *from;
#endif
}

template <int kCount>
PINFEED_BOTH Words<kCount> load_words(const std::uint8_t* from) {
  Words<kCount> words;
#if defined(__CUDA_ARCH__)
  if constexpr (kCount == 1) {
    words.at[0] = __ldg(reinterpret_cast<const unsigned*>(from));
  } else if constexpr (kCount == 2) {
    const uint2 value = __ldg(reinterpret_cast<const uint2*>(from));
    words.at[0] = value.x, words.at[1] = value.y;
  } else {
    const uint4 value = __ldg(reinterpret_cast<const uint4*>(from));
    words.at[0] = value.x, words.at[1] = value.y, words.at[2] = value.z, words.at[3] = value.w;
  }
#else
  require_aligned(from, 4 * kCount);
  std::memcpy(words.at, from, sizeof words);
#endif
  return words;
}

template <int kCount>
PINFEED_BOTH void store_words(std::uint8_t* to, const Words<kCount>& words) {
#if defined(__CUDA_ARCH__)
  if constexpr (kCount == 1) {
    *reinterpret_cast<unsigned*>(to) = words.at[0];
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words.at[0], words.at[1]);
  } else {
    *reinterpret_cast<uint4*>(to) = make_uint4(words.at[0], words.at[1], words.at[2], words.at[3]);
  }
#else
  require_aligned(to, 4 * kCount);
  std::memcpy(to, words.at, sizeof words);
#endif
}

// Bytes [skew, skew + 16) of two vectors, skew from 0 to 15. Indices are constants, because
// run-time indices would move the words from registers to local memory.
PINFEED_BOTH Vector middle(const Vector& low, const Vector& high, unsigned skew) {
  std::uint32_t words[8];
  PINFEED_UNROLL
  for (int i = 0; i < 4; ++i) words[i] = low.at[i], words[i + 4] = high.at[i];
  PINFEED_UNROLL
  for (int i = 0; i < 6; ++i) words[i] = (skew & 8u) != 0 ? words[i + 2] : words[i];
  PINFEED_UNROLL
  for (int i = 0; i < 5; ++i) words[i] = (skew & 4u) != 0 ? words[i + 1] : words[i];
  Vector vector;
  PINFEED_UNROLL
  for (int i = 0; i < 4; ++i) {
    vector.at[i] = shift_words(words[i], words[i + 1], 8u * (skew & 3u));
  }
  return vector;
}

// 16 bytes from any address. [begin, end) is readable and contains them.
PINFEED_BOTH Vector load_unaligned(const std::uint8_t* from, const std::uint8_t* begin,
                                   const std::uint8_t* end) {
  const unsigned skew = misalignment(from, kVectorBytes);
  if (skew == 0) return load_words<4>(from);
  if (skew == 8) {
    const Words<2> low = load_words<2>(from), high = load_words<2>(from + 8);
    return {{low.at[0], low.at[1], high.at[0], high.at[1]}};
  }
  // Neighboring threads read the other parts of these two vectors, which then come from the
  // first-level cache.
  if (from - begin >= skew && end - from >= 2 * kVectorBytes - static_cast<int>(skew)) {
    const std::uint8_t* const low = from - skew;
    return middle(load_words<4>(low), load_words<4>(low + kVectorBytes), skew);
  }
  Vector vector;
  PINFEED_UNROLL
  for (int word = 0; word < 4; ++word) {
    vector.at[word] = 0;
    PINFEED_UNROLL
    for (int byte = 0; byte < 4; ++byte) {
      vector.at[word] |= load_byte(from + 4 * word + byte) << (8 * byte);
    }
  }
  return vector;
}

// Copies `bytes` bytes: 1, 2, 4, 8 or 16. Both pointers are multiples of it.
PINFEED_BOTH void copy_aligned(std::uint8_t* to, const std::uint8_t* from, int bytes) {
  if (bytes == 16) return store_words<4>(to, load_words<4>(from));
  if (bytes == 8) return store_words<2>(to, load_words<2>(from));
  if (bytes == 4) return store_words<1>(to, load_words<1>(from));
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(load_byte(from + i));
}

}  // namespace pinfeed::cuda
