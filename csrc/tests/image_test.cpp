// normalize_images of every instruction set, with images of one size.
#include "kernels/image.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/dispatch.h"
#include "tests/check.h"
#include "tests/image_case.h"
#include "tests/rounding.h"

void image_sizes_tests();
void image_crops_tests();

namespace {

using namespace pinfeed::tests;

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
          // Many channels need fewer ranges of the constants.
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
      const bool large = height * width * channels > 2000;
      for (const Strides& strides : all_strides(height, width, channels)) {
        for (const PixelType type : kTypes) {
          for (const ImageLayout layout : kLayouts) {
            if (large && random() % 8 != 0) continue;  // a part of the slow ones is enough
            ImageCase test{strides.name, {}, height, width, channels, layout, type, random()};
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

// One image of each of many memory layouts, in one batch.
void test_mixed_sources(const Isa& isa) {
  Random random(4);
  for (const std::size_t channels : kChannels) {
    for (const PixelType type : kTypes) {
      for (const ImageLayout layout : kLayouts) {
        ImageCase test{"mixed sources", {}, 6, 21, channels, layout, type, random()};
        for (const Strides& strides : all_strides(6, 21, channels)) {
          test.sources.push_back(place_source(test, strides, random));
        }
        std::shuffle(test.sources.begin(), test.sources.end(), random);
        check_case(isa, test, random);
      }
    }
  }
}

// Images of one array: all in order, by random index, and runs of neighbors.
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
          ImageCase in_order{"in order", {}, height, width, channels, layout, type, random()};
          ImageCase backwards = in_order, gathered = in_order, stretches = in_order;
          backwards.what = "backwards";
          gathered.what = "gathered";
          stretches.what = "runs of neighbors";
          std::size_t index = 0;
          for (std::size_t i = 0; i < count; ++i) {
            in_order.sources.push_back(image(i));
            backwards.sources.push_back(image(count - 1 - i));
            gathered.sources.push_back(image(random() % count));
            index = random() % 4 == 0 ? random() % count : (index + 1) % count;
            stretches.sources.push_back(image(index));
          }
          // The next image begins where the last one ends, but has other row strides.
          for (std::size_t i = 1; i < count; i += 7) stretches.sources[i].row_stride = 0;
          for (const ImageCase& test : {in_order, backwards, gathered, stretches}) {
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
          if (channels > 200 && random() % 8 != 0) continue;
          ImageCase test{strides.name, {}, h, w, channels, layout, kTypes[random() % 4], random()};
          test.sources.push_back(place_source(test, strides, random));
          test.sources.push_back(place_source(test, strides, random));
          check_case(isa, test, random);
        }
      }
    }
  }
}

// Runs that fill several of the aligned buffers before streaming stores.
void test_long_rows(const Isa& isa) {
  Random random(7);
  for (const std::size_t width : {4096, 5003}) {
    for (const std::size_t channels : {1, 3, 4, 5}) {
      for (const Strides& strides : all_strides(1, width, channels)) {
        for (const PixelType type : kTypes) {
          const ImageLayout layout = kLayouts[random() % 2];
          ImageCase test{strides.name, {}, 1, width, channels, layout, type, random()};
          test.sources.push_back(place_source(test, strides, random));
          check_case(isa, test, random);
        }
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

// A scale of zero passes the bias through, so that the SIMD code rounds any number.
void test_rounding(const Isa& isa) {
  std::vector<float> numbers;
  visit_rounding_edges([&](float value) {
    if (std::isfinite(value)) numbers.push_back(value + 0.0f);  // a sum is never -0.0 here
  });
  constexpr std::size_t max_channels = 4000, width = 16;
  const std::vector<float> scale(max_channels);
  const auto check = [&](PixelType type, const std::vector<std::uint16_t>& expected) {
    const auto check_part = [&](std::size_t first, std::size_t channels, std::size_t pixels) {
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
    for (std::size_t first = 0; first + max_channels <= numbers.size(); first += max_channels) {
      check_part(first, max_channels, 1);
    }
    Random random(9);
    for (int repeat = 0; repeat < 5000; ++repeat) {
      check_part(random() % (numbers.size() - 4), 1 + random() % 4, width);
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
  image_sizes_tests();
  image_crops_tests();
}
