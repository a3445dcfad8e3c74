// normalize_images of every instruction set, bit for bit against the definition in kernels/image.h
// written down once more.
#include "kernels/image.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/dispatch.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/image_constants.h"
#include "tests/rounding.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::dispatch::Isa;
using pinfeed::kernels::ImageBatch;
using pinfeed::kernels::ImageLayout;
using pinfeed::kernels::ImageSource;
using pinfeed::kernels::pixel_size;
using pinfeed::kernels::PixelType;
using Random = std::mt19937_64;

constexpr PixelType kTypes[] = {PixelType::float32, PixelType::float16, PixelType::bfloat16,
                                PixelType::uint8};
constexpr ImageLayout kLayouts[] = {ImageLayout::chw, ImageLayout::hwc};
constexpr std::size_t kChannels[] = {1, 2, 3, 4, 5, 17};

// A batch, and the first of the pairs of constants that its channels use.
struct Case {
  std::string what;
  std::vector<ImageSource> sources;
  std::size_t height;
  std::size_t width;
  std::size_t channels;
  ImageLayout layout;
  PixelType type;
  std::size_t first_pair = 0;

  std::size_t rows() const { return sources.size() * height; }
  std::size_t bytes() const { return rows() * width * channels * pixel_size(type); }

  std::string describe(const char* run) const {
    return what + " -> " + (layout == ImageLayout::hwc ? "hwc" : "chw") + ", type " +
           std::to_string(static_cast<int>(type)) + ", " + std::to_string(sources.size()) + " x " +
           std::to_string(height) + " x " + std::to_string(width) + " x " +
           std::to_string(channels) + ", " + run;
  }
};

// The definition: writes rows [begin, end).
void define(const Case& test, std::size_t begin, std::size_t end, std::byte* out) {
  const std::size_t size = pixel_size(test.type);
  const auto channels = static_cast<std::ptrdiff_t>(test.channels);
  for (std::size_t row = begin; row < end; ++row) {
    const std::size_t image = row / test.height, y = row % test.height;
    const ImageSource& source = test.sources[image];
    for (std::size_t x = 0; x < test.width; ++x) {
      const std::uint8_t* pixel = source.data + static_cast<std::ptrdiff_t>(y) * source.row_stride +
                                  static_cast<std::ptrdiff_t>(x) * source.column_stride;
      for (std::ptrdiff_t c = 0; c < channels; ++c) {
        const auto channel = static_cast<std::size_t>(c);
        const std::size_t index =
            test.layout == ImageLayout::hwc
                ? (row * test.width + x) * test.channels + channel
                : ((image * test.channels + channel) * test.height + y) * test.width + x;
        constants().store(test.type, test.first_pair + channel, pixel[c * source.channel_stride],
                          out + index * size);
      }
    }
  }
}

// The whole batch at once with and without streaming stores, then part of its rows before the
// others, each into an output with an alignment of its own.
void check_case(const Isa& isa, const Case& test, Random& random) {
  std::vector<float> scale(test.channels), bias(test.channels);
  for (std::size_t c = 0; c < test.channels; ++c) {
    scale[c] = constants().scale(test.first_pair + c);
    bias[c] = constants().bias(test.first_pair + c);
  }
  ImageBatch batch{test.sources.data(), test.sources.size(), test.height, test.width,
                   test.channels,       scale.data(),        bias.data(), nullptr,
                   test.layout,         test.type,           false};
  if (test.type == PixelType::uint8) batch.scale = batch.bias = nullptr;

  const std::size_t size = pixel_size(test.type), rows = test.rows();
  std::vector<std::byte> all(test.bytes(), MarkedOutput::kMark);
  define(test, 0, rows, all.data());
  for (const bool streaming : {false, true}) {
    const std::size_t misalignment = random() % 3 == 0 ? 0 : random() % (64 / size) * size;
    MarkedOutput out(test.bytes(), misalignment);
    batch.out = out.data();
    batch.streaming = streaming;
    isa.normalize_images(batch, 0, rows);
    if (!out.equals(all)) {
      throw std::runtime_error(test.describe(streaming ? "streaming" : "not streaming"));
    }
  }

  const std::size_t begin = random() % (rows + 1), end = begin + random() % (rows + 1 - begin);
  std::vector<std::byte> part(test.bytes(), MarkedOutput::kMark);
  define(test, begin, end, part.data());
  MarkedOutput out(test.bytes(), random() % (64 / size) * size);
  batch.out = out.data();
  batch.streaming = random() % 2 == 0;
  isa.normalize_images(batch, begin, end);
  if (!out.equals(part)) throw std::runtime_error(test.describe("a range of rows"));
  isa.normalize_images(batch, end, rows);
  isa.normalize_images(batch, 0, begin);
  if (!out.equals(all)) throw std::runtime_error(test.describe("the rows around a range"));
}

// A way for an image to lie in memory.
struct Strides {
  const char* name;
  std::ptrdiff_t row;
  std::ptrdiff_t column;
  std::ptrdiff_t channel;
};

std::vector<Strides> all_strides(std::size_t height, std::size_t width, std::size_t channels) {
  const auto h = static_cast<std::ptrdiff_t>(height), w = static_cast<std::ptrdiff_t>(width);
  const auto c = static_cast<std::ptrdiff_t>(channels), plane = h * w;
  return {{"pixels", w * c, c, 1},
          {"pixels, cropped", (w + 5) * c, c, 1},
          {"pixels, mirrored", w * c, -c, 1},
          {"pixels, mirrored and cropped", (w + 5) * c, -c, 1},
          {"pixels, flipped", -w * c, c, 1},
          {"pixels, flipped and mirrored", -w * c, -c, 1},
          {"pixels, BGR", w * c, c, -1},
          {"pixels, BGR, cropped", (w + 1) * c, c, -1},
          {"pixels, BGR, mirrored", w * c, -c, -1},
          {"pixels, BGR, flipped and mirrored", -w * c, -c, -1},
          {"pixels, every other column", 2 * w * c, 2 * c, 1},
          {"pixels, every other row", 2 * w * c, c, 1},
          {"pixels, first channels", w * (c + 1), c + 1, 1},
          {"pixels, first channels, mirrored", w * (c + 1), -(c + 1), 1},
          {"pixels, transposed", c, h * c, 1},
          {"planes", w, 1, plane},
          {"planes, cropped", w + 7, 1, h * (w + 7)},
          {"planes, mirrored", w, -1, plane},
          {"planes, flipped", -w, 1, plane},
          {"planes, flipped and mirrored", -w, -1, plane},
          {"planes, BGR", w, 1, -plane},
          {"planes, every other column", 2 * w, 2, 2 * plane},
          {"planes, transposed", 1, h, plane},
          {"lines of planes", w * c, 1, w},
          {"one plane for all channels", w, 1, 0},
          {"one row for all", 0, c, 1},
          {"one column for all", c, 0, 1},
          {"one value for all", 0, 0, 0}};
}

// Memory for sources, whose ends must not be crossed.
const GuardedBytes& source_memory() {
  static const GuardedBytes memory(std::size_t{1} << 20);
  return memory;
}

ImageSource place_source(const Case& test, const Strides& strides, Random& random) {
  std::ptrdiff_t lowest = 0, highest = 0;
  const auto extend = [&](std::size_t size, std::ptrdiff_t stride) {
    const std::ptrdiff_t last = (static_cast<std::ptrdiff_t>(size) - 1) * stride;
    (last < 0 ? lowest : highest) += last;
  };
  extend(test.height, strides.row);
  extend(test.width, strides.column);
  extend(test.channels, strides.channel);
  return {source_memory().place(lowest, highest, random), strides.row, strides.column,
          strides.channel};
}

void test_byte_values(const Isa& isa) {
  Random random(2);
  std::vector<std::uint8_t> bytes(256 * 17);
  for (const std::size_t channels : kChannels) {
    for (const ImageLayout in : kLayouts) {
      // Channel c of pixel p holds p + 37 c, so that each channel meets each value.
      const std::size_t pixel_step = in == ImageLayout::hwc ? channels : 1;
      const std::size_t channel_step = in == ImageLayout::hwc ? 1 : 256;
      for (std::size_t p = 0; p < 256; ++p) {
        for (std::size_t c = 0; c < channels; ++c) {
          bytes[p * pixel_step + c * channel_step] = static_cast<std::uint8_t>(p + 37 * c);
        }
      }
      const ImageSource source{bytes.data(), static_cast<std::ptrdiff_t>(16 * pixel_step),
                               static_cast<std::ptrdiff_t>(pixel_step),
                               static_cast<std::ptrdiff_t>(channel_step)};
      for (const ImageLayout out : kLayouts) {
        for (const PixelType type : kTypes) {
          // Fewer windows over the constants are enough for many channels.
          for (std::size_t pair = 0; pair < 60; pair += channels) {
            check_case(isa, {"all bytes", {source}, 16, 16, channels, out, type, random()}, random);
          }
        }
      }
    }
  }
}

void test_sizes_and_strides(const Isa& isa) {
  struct Size {
    std::size_t height, width;
  };
  Random random(3);
  for (const auto [height, width] : {Size{1, 1}, Size{7, 5}, Size{3, 16}, Size{17, 31},
                                     Size{33, 64}, Size{40, 41}, Size{65, 97}}) {
    for (const std::size_t channels : kChannels) {
      const bool large = height * width * channels > 5000;
      for (const Strides& strides : all_strides(height, width, channels)) {
        for (const PixelType type : kTypes) {
          for (const ImageLayout layout : kLayouts) {
            if (large && random() % 4 != 0) continue;  // a part of the slow ones is enough
            Case test{strides.name, {}, height, width, channels, layout, type, random()};
            const std::size_t count = 1 + random() % 3;
            for (std::size_t i = 0; i < count; ++i) {
              test.sources.push_back(place_source(test, strides, random));
            }
            check_case(isa, test, random);
          }
        }
      }
    }
  }
}

// One image of each of many ways to lie in memory, in one batch.
void test_mixed_sources(const Isa& isa) {
  Random random(4);
  for (const std::size_t channels : kChannels) {
    for (const PixelType type : kTypes) {
      for (const ImageLayout layout : kLayouts) {
        Case test{"mixed sources", {}, 6, 21, channels, layout, type, random()};
        for (const Strides& strides : all_strides(6, 21, channels)) {
          test.sources.push_back(place_source(test, strides, random));
        }
        std::shuffle(test.sources.begin(), test.sources.end(), random);
        check_case(isa, test, random);
      }
    }
  }
}

// Images out of one array: all in order, by random index, and stretches of neighbours.
void test_gathered_sources(const Isa& isa) {
  Random random(5);
  constexpr std::size_t count = 40;
  for (const std::size_t channels : kChannels) {
    for (const std::size_t height : {1, 4}) {
      const std::size_t width = 9, bytes = height * width * channels;
      const std::uint8_t* const array = source_memory().end() - count * bytes;
      const auto image = [&](std::size_t index) {
        return ImageSource{array + index * bytes, static_cast<std::ptrdiff_t>(width * channels),
                           static_cast<std::ptrdiff_t>(channels), 1};
      };
      for (const PixelType type : kTypes) {
        for (const ImageLayout layout : kLayouts) {
          Case in_order{"in order", {}, height, width, channels, layout, type, random()};
          Case backwards = in_order, gathered = in_order, stretches = in_order;
          backwards.what = "backwards";
          gathered.what = "gathered";
          stretches.what = "stretches of neighbours";
          std::size_t index = 0;
          for (std::size_t i = 0; i < count; ++i) {
            in_order.sources.push_back(image(i));
            backwards.sources.push_back(image(count - 1 - i));
            gathered.sources.push_back(image(random() % count));
            index = random() % 4 == 0 ? random() % count : (index + 1) % count;
            stretches.sources.push_back(image(index));
          }
          // The next image begins where the last one ends, but its rows lie elsewhere.
          for (std::size_t i = 1; i < count; i += 7) stretches.sources[i].row_stride = 0;
          for (const Case& test : {in_order, backwards, gathered, stretches}) {
            check_case(isa, test, random);
          }
        }
      }
    }
  }
}

// Around the limits of tiles and tables.
void test_many_channels(const Isa& isa) {
  Random random(6);
  for (const std::size_t channels : {63, 64, 65, 200, 1365, 4095, 4096, 4097, 5000}) {
    for (const auto& [height, width] : {std::pair{1, 1}, std::pair{2, 3}, std::pair{1, 17}}) {
      const auto h = static_cast<std::size_t>(height), w = static_cast<std::size_t>(width);
      for (const Strides& strides : all_strides(h, w, channels)) {
        for (const ImageLayout layout : kLayouts) {
          if (channels > 200 && random() % 4 != 0) continue;
          Case test{strides.name, {}, h, w, channels, layout, kTypes[random() % 4], random()};
          test.sources.push_back(place_source(test, strides, random));
          test.sources.push_back(place_source(test, strides, random));
          check_case(isa, test, random);
        }
      }
    }
  }
}

// Runs as long as several stretches of the aligned buffers that streaming stores go through.
void test_long_rows(const Isa& isa) {
  Random random(7);
  for (const std::size_t width : {4096, 5003}) {
    for (const std::size_t channels : {1, 3, 4, 5}) {
      for (const Strides& strides : all_strides(1, width, channels)) {
        const ImageLayout layout = kLayouts[random() % 2];
        Case test{strides.name, {}, 1, width, channels, layout, kTypes[random() % 4], random()};
        test.sources.push_back(place_source(test, strides, random));
        check_case(isa, test, random);
      }
    }
  }
}

void test_nothing_to_do(const Isa& isa) {
  Random random(8);
  const ImageSource source{source_memory().end(), 0, 0, 0};
  for (const PixelType type : kTypes) {
    for (const ImageLayout layout : kLayouts) {
      check_case(isa, {"no images", {}, 4, 4, 3, layout, type}, random);
      check_case(isa, {"no rows", {source}, 0, 4, 3, layout, type}, random);
      check_case(isa, {"no columns", {source}, 4, 0, 3, layout, type}, random);
      check_case(isa, {"no channels", {source}, 4, 4, 0, layout, type}, random);
    }
  }
}

// A scale of zero hands the bias through, so that the vector code can be asked to round any number.
void test_rounding(const Isa& isa) {
  std::vector<float> numbers;
  visit_rounding_edges([&](float value) {
    if (std::isfinite(value)) numbers.push_back(value + 0.0f);  // a sum is never -0.0 here
  });
  constexpr std::size_t most_channels = 4000, width = 16;
  const std::vector<float> scale(most_channels);
  const auto check = [&](PixelType type, const std::vector<std::uint16_t>& expected) {
    const auto check_window = [&](std::size_t first, std::size_t channels, std::size_t pixels) {
      const ImageSource source{source_memory().begin(), 0, static_cast<std::ptrdiff_t>(channels),
                               1};
      std::vector<std::uint16_t> out(channels * pixels);
      isa.normalize_images({&source, 1, 1, pixels, channels, scale.data(), numbers.data() + first,
                            out.data(), ImageLayout::chw, type, false},
                           0, 1);
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (out[i] != expected[first + i / pixels]) {
          throw std::runtime_error("rounds wrongly: " +
                                   std::to_string(numbers[first + i / pixels]));
        }
      }
    };
    for (std::size_t first = 0; first + most_channels <= numbers.size(); first += most_channels) {
      check_window(first, most_channels, 1);
    }
    Random random(9);
    for (int repeat = 0; repeat < 5000; ++repeat) {
      check_window(random() % (numbers.size() - 4), 1 + random() % 4, width);
    }
  };
  std::vector<std::uint16_t> expected(numbers.size());
  std::transform(numbers.begin(), numbers.end(), expected.begin(), float16_bits);
  check(PixelType::float16, expected);
  std::transform(numbers.begin(), numbers.end(), expected.begin(), bfloat16_bits);
  check(PixelType::bfloat16, expected);
}

}  // namespace

void image_tests() {
  for (const Isa& isa : pinfeed::dispatch::compiled_isas()) {
    const auto run_isa = [&](const char* name, void (*test)(const Isa&)) {
      const std::string full = "normalize_images on " + std::string(isa.name) + ": " + name;
      run_if(isa.supported(), "this CPU does not have it", full.c_str(), [&] { test(isa); });
    };
    run_isa("all byte values", test_byte_values);
    run_isa("rounding to 16 bits", test_rounding);
    run_isa("sizes and strides", test_sizes_and_strides);
    run_isa("mixed sources", test_mixed_sources);
    run_isa("gathered sources", test_gathered_sources);
    run_isa("many channels", test_many_channels);
    run_isa("long rows", test_long_rows);
    run_isa("nothing to do", test_nothing_to_do);
  }
}
