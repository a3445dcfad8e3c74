// Image primitives for NEON, which every AArch64 CPU has.
//
// NEON has no intrinsics for streaming stores, so `Streaming` changes nothing here.
#include <arm_neon.h>

#include <type_traits>

#include "kernels/image_blocks.h"

namespace pinfeed::kernels {
namespace {

inline uint8x16_t reversed(uint8x16_t bytes) {
  const uint8x16_t halves = vrev64q_u8(bytes);
  return vextq_u8(halves, halves, 8);
}

// Sixteen values in order.
struct Floats {
  float32x4_t part[4];
};

inline Floats to_floats(uint8x16_t bytes) {
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
}

inline Floats load_floats(const std::uint8_t* from) { return to_floats(vld1q_u8(from)); }

inline Floats load_floats(const float* from) {
  return {vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)};
}

inline Floats to_floats(const Floats& values) { return values; }

// The channels of sixteen pixels, each in order.
template <int Step>
inline void load_channels(const std::uint8_t* from, uint8x16_t (&channels)[Step]) {
  if constexpr (Step == 1) {
    channels[0] = vld1q_u8(from);
  } else if constexpr (Step == 3) {
    const uint8x16x3_t in = vld3q_u8(from);
    for (int c = 0; c < 3; ++c) channels[c] = in.val[c];
  } else {
    const uint8x16x4_t in = vld4q_u8(from);
    for (int c = 0; c < 4; ++c) channels[c] = in.val[c];
  }
}

template <int Step>
inline void load_channels(const float* from, Floats (&channels)[Step]) {
  if constexpr (Step == 1) channels[0] = load_floats(from);
  for (int part = 0; Step > 1 && part < 4; ++part, from += 4 * Step) {
    if constexpr (Step == 3) {
      const float32x4x3_t in = vld3q_f32(from);
      for (int c = 0; c < 3; ++c) channels[c].part[part] = in.val[c];
    } else if constexpr (Step == 4) {
      const float32x4x4_t in = vld4q_f32(from);
      for (int c = 0; c < 4; ++c) channels[c].part[part] = in.val[c];
    }
  }
}

inline uint16x8_t to_float16(float32x4_t low, float32x4_t high) {
  return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
}

// The addend of to_bfloat16_bits, before it keeps the upper half; 0 for a NaN, which is quiet after
// the multiply-add.
inline uint32x4_t bfloat16_rounding(float32x4_t value) {
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(vreinterpretq_u32_f32(value), 16), vdupq_n_u32(1));
  return vandq_u32(vaddq_u32(odd, vdupq_n_u32(0x7fff)), vceqq_f32(value, value));
}

inline uint16x8_t to_bfloat16(float32x4_t low, float32x4_t high) {
  // vaddhn: the upper halves of the sums.
  return vaddhn_high_u32(vaddhn_u32(vreinterpretq_u32_f32(low), bfloat16_rounding(low)),
                         vreinterpretq_u32_f32(high), bfloat16_rounding(high));
}

template <PixelType Type>
inline void store_block(std::byte* out, const Floats& values) {
  const auto& part = values.part;
  if constexpr (Type == PixelType::float32) {
    auto* const to = reinterpret_cast<float*>(out);
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, part[i]);
  } else {
    auto* const to = reinterpret_cast<std::uint16_t*>(out);
    constexpr auto round = Type == PixelType::float16 ? to_float16 : to_bfloat16;
    vst1q_u16(to, round(part[0], part[1]));
    vst1q_u16(to + 8, round(part[2], part[3]));
  }
}

inline Floats reversed(const Floats& values) {
  Floats result;
  for (int i = 0; i < 4; ++i) {
    const float32x4_t pairs = vrev64q_f32(values.part[3 - i]);
    result.part[i] = vextq_f32(pairs, pairs, 2);
  }
  return result;
}

inline Floats scaled(Floats values, float scale, float bias) {
  for (float32x4_t& part : values.part) {
    part = vfmaq_f32(vdupq_n_f32(bias), part, vdupq_n_f32(scale));
  }
  return values;
}

struct Neon {
  static constexpr const CastTable* casts = &kCastScalar;
  static constexpr const PermuteRuns* permute = &kPermuteNeon;
  static constexpr CopyRows copy_rows = copy_by<16>;

  template <PixelType Type, int Step, int Channels, bool Streaming, bool Backwards, class Value>
  static void planes_blocks(const Value* pixels, std::size_t blocks, const float* scale,
                            const float* bias, std::byte* out, std::ptrdiff_t plane_stride) {
    for (std::size_t block = 0; block < blocks; ++block) {
      std::conditional_t<std::is_same_v<Value, float>, Floats, uint8x16_t> channels[Step];
      load_channels(pixels, channels);
      for (int c = 0; c < Channels; ++c) {
        std::byte* const plane = out + c * plane_stride;
        const auto values = Backwards ? reversed(channels[c]) : channels[c];
        if constexpr (Type == PixelType::uint8) {
          vst1q_u8(reinterpret_cast<std::uint8_t*>(plane), values);
        } else {
          store_block<Type>(plane, scaled(to_floats(values), scale[c], bias[c]));
        }
      }
      pixels += kNext<Step, Backwards>;
      out += kBlock * pixel_size(Type);
    }
  }

  template <PixelType Type, bool Streaming, class Value>
  static void packed_blocks(const Value* values, std::size_t blocks,
                            const PackedConstants& constants, std::size_t phase, std::byte* out) {
    const std::size_t period = constants.period, advance = kBlock % period;
    for (std::size_t block = 0; block < blocks; ++block) {
      const float* const scale = constants.scale + phase;
      const float* const bias = constants.bias + phase;
      Floats block_values = load_floats(values);
      for (int i = 0; i < 4; ++i) {
        float32x4_t& part = block_values.part[i];
        part = vfmaq_f32(vld1q_f32(bias + 4 * i), part, vld1q_f32(scale + 4 * i));
      }
      store_block<Type>(out, block_values);
      phase += advance;
      if (phase >= period) phase -= period;
      values += kBlock;
      out += kBlock * pixel_size(Type);
    }
  }

  static void pick_blocks(const std::uint8_t* from, std::ptrdiff_t from_step, std::size_t blocks,
                          const std::uint8_t* table, std::uint8_t* to, std::ptrdiff_t to_step) {
    const uint8x16_t shuffle = vld1q_u8(table);
    for (; blocks > 0; --blocks, from += from_step, to += to_step) {
      vst1q_u8(to, vqtbl1q_u8(vld1q_u8(from), shuffle));
    }
  }
};

// Interleaves planes of bytes.
template <int Channels>
void interleave(const std::byte* planes, std::ptrdiff_t plane_stride, std::size_t count,
                std::byte* pixels, bool) {
  if (count < kBlock) return interleave_scalar<1, Channels>(planes, plane_stride, count, pixels);
  const auto write = [&](std::size_t first) {
    const auto plane = [&](int c) {
      return vld1q_u8(reinterpret_cast<const std::uint8_t*>(planes) + first + c * plane_stride);
    };
    auto* const to = reinterpret_cast<std::uint8_t*>(pixels) + first * Channels;
    // Macros in some compilers, which would split braces at their commas.
    if constexpr (Channels == 3) {
      const uint8x16x3_t three = {{plane(0), plane(1), plane(2)}};
      vst3q_u8(to, three);
    } else {
      const uint8x16x4_t four = {{plane(0), plane(1), plane(2), plane(3)}};
      vst4q_u8(to, four);
    }
  };
  for (std::size_t first = 0; first + kBlock < count; first += kBlock) write(first);
  write(count - kBlock);
}

}  // namespace

const PermuteRuns kPermuteNeon = [] {
  PermuteRuns runs = kPermuteScalar;
  runs.interleave[0][1] = interleave<3>;
  runs.interleave[0][2] = interleave<4>;
  return runs;
}();

constexpr ImageRuns kImageRunsNeon = make_image_runs<Neon>();

}  // namespace pinfeed::kernels
