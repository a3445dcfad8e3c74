// normalize_images of every instruction set with crops that extend beyond their images.
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

constexpr Border kBorders[] = {Border::constant, Border::edge, Border::reflect};

// A random first row (or column) of a crop of `slot` rows in an image of `size` rows.
std::ptrdiff_t any_first(std::size_t size, std::size_t slot, Border border, Random& random) {
  const auto image = static_cast<std::ptrdiff_t>(size), crop = static_cast<std::ptrdiff_t>(slot);
  std::ptrdiff_t lowest = -crop - 2, highest = image + 2;
  if (border == Border::reflect) {
    lowest = 1 - image;
    highest = 2 * image - 1 - crop;
  }
  return lowest +
         static_cast<std::ptrdiff_t>(random() % static_cast<std::size_t>(highest - lowest + 1));
}

// A random image size that fits the crop.
std::size_t any_size(std::size_t slot, Border border, Random& random) {
  if (border == Border::reflect) return (slot + 4) / 3 + random() % (slot + 2);
  return (border == Border::edge ? 1 : 0) + random() % (slot + 5);
}

// A batch of crops of images in all memory layouts. One image in `covering` covers its slot.
void check_crops(const Isa& isa, Border border, ImageSize slot, std::size_t channels,
                 ImageLayout layout, PixelType type, Random& random,
                 ScalarType in_type = ScalarType::uint8, std::size_t frames = 1,
                 unsigned covering = 8) {
  const std::size_t item = scalar_size(in_type), pixel = channels * item;
  std::vector<std::uint8_t> fill(pixel);
  for (std::uint8_t& value : fill) value = static_cast<std::uint8_t>(random());
  if (random() % 3 == 0) {
    for (std::size_t i = item; i < pixel; ++i) fill[i] = fill[i - item];
  }
  fill.resize(pixel * slot.width);
  for (std::size_t i = pixel; i < fill.size(); ++i) fill[i] = fill[i - pixel];
  std::deque<ImageCrop> crops;
  ImageCase test{"crops", {}, slot.height, slot.width, channels, layout, type, random()};
  test.in_type = in_type;
  test.frames = frames;
  const std::size_t ways = all_strides(1, 1, channels).size();
  for (std::size_t way = 0; way < ways; ++way) {
    const ImageSize size{any_size(slot.height, border, random),
                         any_size(slot.width, border, random)};
    ImageSource source{source_memory().end(), 1, 1, 1};
    if (size.height * size.width > 0) {
      source = place_source(size, channels, all_strides(size.height, size.width, channels)[way],
                            random, in_type);
    }
    if (random() % covering == 0) {
      source = place_source(slot, channels, all_strides(slot.height, slot.width, channels)[way],
                            random, in_type);
    } else {
      source.crop =
          &crops.emplace_back(ImageCrop{any_first(size.height, slot.height, border, random),
                                        any_first(size.width, slot.width, border, random),
                                        size.height, size.width, border, fill.data()});
    }
    test.sources.push_back(source);
  }
  check_case(isa, test, random);
}

void test_borders(const Isa& isa) {
  Random random(1);
  for (const Border border : kBorders) {
    for (const ImageSize slot : {ImageSize{1, 1}, ImageSize{7, 5}, ImageSize{17, 31},
                                 ImageSize{32, 32}, ImageSize{5, 90}}) {
      for (const std::size_t channels : kChannels) {
        const bool large = slot.height * slot.width * channels > 1000;
        for (const PixelType type : kTypes) {
          for (const ImageLayout layout : kLayouts) {
            if (large && random() % 4 != 0) continue;  // a part of the slow ones is enough
            check_crops(isa, border, slot, channels, layout, type, random);
          }
        }
      }
    }
  }
}

// Images, and clips of four frames.
void test_other_types(const Isa& isa) {
  Random random(3);
  for (const auto [in, out] : kOtherTypes) {
    for (const ImageLayout layout : kLayouts) {
      const auto check = [&](ImageSize slot, std::size_t channels) {
        const Border border = kBorders[random() % 3];
        const std::size_t frames = random() % 2 == 0 ? 1 : 4;
        check_crops(isa, border, slot, channels, layout, out, random, in, frames, 2);
      };
      for (const std::size_t channels : {1, 3, 4, 5}) check({7, 21}, channels);
      check({1, 700}, 3);  // more than fits a tile
    }
  }
}

// Rows and pixels that don't fit a tile.
void test_long_rows(const Isa& isa) {
  Random random(2);
  for (const Border border : kBorders) {
    for (const ImageLayout layout : kLayouts) {
      check_crops(isa, border, {2, 2051}, 3, layout, kTypes[random() % 4], random);
      check_crops(isa, border, {1, 3}, 4097, layout, kTypes[random() % 4], random);
    }
  }
}

}  // namespace

void image_crops_tests() {
  for (const Isa& isa : pinfeed::dispatch::compiled_isas()) {
    const auto run_isa = [&](const char* name, void (*test)(const Isa&)) {
      const std::string full = "crops of images on " + std::string(isa.name) + ": " + name;
      run_if(isa.supported(), "this CPU does not have it", full.c_str(), [&] { test(isa); });
    };
    run_isa("borders", test_borders);
    run_isa("other types and clips", test_other_types);
    run_isa("long rows", test_long_rows);
  }
}
