// resize_images of every instruction set against a second implementation of the definition in
// kernels/resize.h, over whole images. Python tests compare the weights with torch's.
#include "kernels/resize.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/every_isa.h"
#include "tests/image_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Border;
using pinfeed::kernels::ImageResize;
using pinfeed::kernels::Interpolation;
using pinfeed::kernels::Taps;

// An image, or a result, without gaps.
template <class Value>
struct Pixels {
  std::size_t height, width, channels;
  std::vector<Value> values;

  Pixels(std::size_t h, std::size_t w, std::size_t c)
      : height(h), width(w), channels(c), values(h * w * c) {}
  Value& at(std::size_t y, std::size_t x, std::size_t c) {
    return values[(y * width + x) * channels + c];
  }
};

// Calls store(i, value) for each output of an axis whose value at position p is read(p).
template <class Value, class Read, class Store>
void resize_axis(std::size_t in, std::size_t out, Interpolation interpolation, const Read& read,
                 const Store& store) {
  constexpr bool kFloats = std::is_same_v<Value, float>;
  static Taps taps;
  taps.find({in, out, 0, out, false, Border::constant, interpolation, kFloats});
  for (std::size_t i = 0; i < out; ++i) {
    const std::size_t first = taps.source_begin() + taps.first(i);
    if (takes_nearest(interpolation)) {
      store(i, read(first));
      continue;
    }
    if constexpr (kFloats) {
      float sum = 0;
      for (std::size_t t = 0; t < taps.max_taps() && first + t < in; ++t) {
        const float weight = *taps.floats(i, t);
        if (weight != 0) sum += read(first + t) * weight;
      }
      store(i, sum);
      continue;
    }
    std::int64_t sum = std::int64_t{1} << (taps.precision() - 1);
    for (std::size_t t = 0; t < 2 * taps.pairs() && first + t < in; ++t) {
      sum += static_cast<std::int64_t>(read(first + t)) * taps.weight(i, t);
    }
    sum >>= taps.precision();
    store(i, static_cast<Value>(std::clamp<std::int64_t>(sum, 0, 255)));
  }
}

template <class Value>
Pixels<Value> resized(const ImageSource& source, const ImageResize& resize, std::size_t channels,
                      Interpolation interpolation) {
  const auto [height, width] = resize.source;
  Pixels<Value> narrow(height, resize.resized.width, channels);
  Pixels<Value> result(resize.resized.height, resize.resized.width, channels);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t y = 0; y < height; ++y) {
      resize_axis<Value>(
          width, narrow.width, interpolation,
          [&](std::size_t x) { return static_cast<Value>(*item_at(source, y, x, c)); },
          [&](std::size_t x, Value value) { narrow.at(y, x, c) = value; });
    }
    for (std::size_t x = 0; x < narrow.width; ++x) {
      resize_axis<Value>(
          height, result.height, interpolation, [&](std::size_t y) { return narrow.at(y, x, c); },
          [&](std::size_t y, Value value) { result.at(y, x, c) = value; });
    }
  }
  return result;
}

// A batch of images of bytes in all memory layouts, each resized differently.
template <class Value>
void check_resizes(const Isa& isa, Interpolation interpolation, ImageSize slot,
                   std::size_t channels, std::size_t largest, Random& random) {
  const std::vector<Value> fill(channels, 77);
  std::vector<ImageSource> sources;
  std::vector<std::optional<ImageResize>> resizes;
  std::vector<std::byte> expected;
  const auto any = [&](std::size_t most) { return 1 + random() % most; };
  for (std::size_t way = 0; way < all_strides(1, 1, channels).size(); ++way) {
    const bool is_resized = way % 7 != 3;
    const ImageSize size = is_resized ? ImageSize{any(largest), any(largest)} : slot;
    const ImageSource source =
        place_source(size, channels, all_strides(size.height, size.width, channels)[way], random);
    const auto move = [&] { return static_cast<std::ptrdiff_t>(random() % 9) - 4; };
    const ImageResize resize{size,
                             {any(2 * slot.height), any(2 * slot.width)},
                             move(),
                             move(),
                             random() % 2 == 0,
                             random() % 2 == 0,
                             random() % 2 == 0 ? Border::constant : Border::edge,
                             reinterpret_cast<const std::uint8_t*>(fill.data())};
    sources.push_back(source);
    resizes.push_back(is_resized ? std::optional(resize) : std::nullopt);
    std::optional<Pixels<Value>> pixels;
    if (is_resized) pixels = resized<Value>(source, resize, channels, interpolation);
    for (std::size_t y = 0; y < slot.height; ++y) {
      for (std::size_t x = 0; x < slot.width; ++x) {
        for (std::size_t c = 0; c < channels; ++c) {
          Value value = 77;
          if (!is_resized) {
            value = *item_at(source, y, x, c);
          } else {
            using pinfeed::kernels::within;
            const std::size_t v = resize.flipped_rows ? slot.height - 1 - y : y;
            const std::size_t u = resize.flipped_columns ? slot.width - 1 - x : x;
            const std::ptrdiff_t row = within(resize.top + static_cast<std::ptrdiff_t>(v),
                                              resize.resized.height, resize.border);
            const std::ptrdiff_t column = within(resize.left + static_cast<std::ptrdiff_t>(u),
                                                 resize.resized.width, resize.border);
            if (row >= 0 && column >= 0) {
              value =
                  pixels->at(static_cast<std::size_t>(row), static_cast<std::size_t>(column), c);
            }
          }
          const std::span bytes = std::as_bytes(std::span(&value, 1));
          expected.insert(expected.end(), bytes.begin(), bytes.end());
        }
      }
    }
  }
  const std::vector<float> ones(channels, 1.0F), zeros(channels, 0.0F);
  constexpr bool kFloats = std::is_same_v<Value, float>;
  MarkedOutput out(expected.size(), random() % 64);
  const ImageBatch batch{.sources = sources.data(),
                         .count = sources.size(),
                         .height = slot.height,
                         .width = slot.width,
                         .channels = channels,
                         .scale = ones.data(),
                         .bias = zeros.data(),
                         .out = out.data(),
                         .out_layout = ImageLayout::hwc,
                         .out_type = kFloats ? PixelType::float32 : PixelType::uint8,
                         .streaming = random() % 2 == 0};
  const std::size_t rows = batch.count * batch.height, middle = random() % (rows + 1);
  const pinfeed::kernels::ResizedBatch resized_batch{batch, resizes.data(), interpolation, nullptr,
                                                     kFloats};
  resize_images(*isa.resize, resized_batch, middle, rows);
  resize_images(*isa.resize, resized_batch, 0, middle);
  if (!out.equals(expected)) {
    throw std::runtime_error(std::to_string(slot.height) + " x " + std::to_string(slot.width) +
                             " x " + std::to_string(channels) + " of up to " +
                             std::to_string(largest));
  }
}

void test_resizes(const Isa& isa) {
  Random random(1);
  for (const Interpolation interpolation : {Interpolation::bilinear, Interpolation::bicubic,
                                            Interpolation::nearest, Interpolation::nearest_exact}) {
    for (const std::size_t channels : kChannels) {
      for (const ImageSize slot : {ImageSize{1, 1}, ImageSize{7, 5}, ImageSize{17, 31}}) {
        for (const std::size_t largest : {5, 40}) {
          check_resizes<std::uint8_t>(isa, interpolation, slot, channels, largest, random);
        }
      }
      check_resizes<std::uint8_t>(isa, interpolation, {3, 700}, channels, 20, random);
      if (takes_nearest(interpolation)) continue;
      check_resizes<float>(isa, interpolation, {17, 31}, channels, 40, random);
    }
  }
}

}  // namespace

void resize_tests() { run_on_isas("resized images", test_resizes); }
