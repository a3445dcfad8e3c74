// normalize_images of every instruction set where windows leave their images.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "kernels/image.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/image_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Border;

// Any first row (or column) that a window of `place` rows may have in an image of `size`.
std::ptrdiff_t any_first(std::size_t size, std::size_t place, Border border, Random& random) {
  const auto image = static_cast<std::ptrdiff_t>(size), window = static_cast<std::ptrdiff_t>(place);
  std::ptrdiff_t lowest = -window - 2, highest = image + 2;
  if (border == Border::reflect) {
    lowest = 1 - image;
    highest = 2 * image - 1 - window;
  }
  return lowest +
         static_cast<std::ptrdiff_t>(random() % static_cast<std::size_t>(highest - lowest + 1));
}

// A size of image that the window can be of.
std::size_t any_size(std::size_t place, Border border, Random& random) {
  if (border == Border::reflect) return (place + 4) / 3 + random() % (place + 2);
  return (border == Border::edge ? 1 : 0) + random() % (place + 5);
}

// Images in every way that they can lie in memory and as many windows, all in one batch.
void check_windows(const Isa& isa, Border border, ImageSize place, std::size_t channels,
                   ImageLayout layout, PixelType type, Random& random) {
  std::vector<std::uint8_t> fill(channels);
  for (std::uint8_t& value : fill) value = static_cast<std::uint8_t>(random());
  if (random() % 3 == 0) fill.assign(channels, fill[0]);
  fill.resize(channels * place.width);
  for (std::size_t i = channels; i < fill.size(); ++i) fill[i] = fill[i - channels];
  std::deque<ImageWindow> windows;
  ImageCase test{"windows", {}, place.height, place.width, channels, layout, type, random()};
  const std::size_t ways = all_strides(1, 1, channels).size();
  for (std::size_t way = 0; way < ways; ++way) {
    const ImageSize size{any_size(place.height, border, random),
                         any_size(place.width, border, random)};
    ImageSource source{source_memory().end(), 1, 1, 1};
    if (size.height * size.width > 0) {
      source =
          place_source(size, channels, all_strides(size.height, size.width, channels)[way], random);
    }
    if (random() % 8 == 0) {  // one that covers its place, among the others
      source = place_source(place, channels, all_strides(place.height, place.width, channels)[way],
                            random);
    } else {
      source.window =
          &windows.emplace_back(ImageWindow{any_first(size.height, place.height, border, random),
                                            any_first(size.width, place.width, border, random),
                                            size.height, size.width, border, fill.data()});
    }
    test.sources.push_back(source);
  }
  check_case(isa, test, random);
}

void test_borders(const Isa& isa) {
  Random random(1);
  for (const Border border : {Border::constant, Border::edge, Border::reflect}) {
    for (const ImageSize place : {ImageSize{1, 1}, ImageSize{7, 5}, ImageSize{17, 31},
                                  ImageSize{32, 32}, ImageSize{5, 90}}) {
      for (const std::size_t channels : kChannels) {
        for (const PixelType type : kTypes) {
          for (const ImageLayout layout : kLayouts) {
            check_windows(isa, border, place, channels, layout, type, random);
          }
        }
      }
    }
  }
}

// Rows and pixels that don't fit a tile.
void test_long_rows(const Isa& isa) {
  Random random(2);
  for (const Border border : {Border::constant, Border::edge, Border::reflect}) {
    for (const PixelType type : kTypes) {
      for (const ImageLayout layout : kLayouts) {
        check_windows(isa, border, {3, 2051}, 3, layout, type, random);
        check_windows(isa, border, {2, 3}, 4097, layout, type, random);
      }
    }
  }
}

}  // namespace

void image_windows_tests() {
  for (const Isa& isa : pinfeed::dispatch::compiled_isas()) {
    const auto run_isa = [&](const char* name, void (*test)(const Isa&)) {
      const std::string full = "windows of images on " + std::string(isa.name) + ": " + name;
      run_if(isa.supported(), "this CPU does not have it", full.c_str(), [&] { test(isa); });
    };
    run_isa("borders", test_borders);
    run_isa("long rows", test_long_rows);
  }
}
