// normalize_images of every instruction set with images smaller than their slots, and their masks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dispatch/dispatch.h"
#include "kernels/image.h"
#include "tests/check.h"
#include "tests/guarded_memory.h"
#include "tests/image_case.h"

namespace {

using namespace pinfeed::tests;

// A case without images, whose padding is 0 or random bits, possibly NaN.
ImageCase empty_case(const char* what, ImageSize slot, std::size_t channels, ImageLayout layout,
                     PixelType type, Random& random) {
  const std::uint64_t any = random(), padding = random() % 4 == 0 ? 0 : any;
  return {what, {},       slot.height, slot.width, channels,         layout,
          type, random(), {},          padding,    random() % 2 == 0};
}

// Adds an image with one of the possible strides for its size, number `strides`.
void add_image(ImageCase& test, ImageSize size, std::size_t strides, Random& random) {
  test.sizes.push_back(size);
  if (size.height * size.width == 0) {  // nothing to read
    test.sources.push_back({source_memory().end(), 1, 1, 1});
    return;
  }
  const std::vector<Strides> all = all_strides(size.height, size.width, test.channels);
  test.sources.push_back(
      place_source(size, test.channels, all[strides % all.size()], random, test.in_type));
}

// The slot's size, a smaller size, or nothing.
std::size_t some_of(std::size_t size, Random& random) {
  return random() % 4 == 0 ? size : random() % (size + 1);
}

// Checks a batch of images in all memory layouts.
void check_all_strides(const Isa& isa, ImageCase& test, Random& random) {
  const std::size_t ways = all_strides(1, 1, test.channels).size();
  for (std::size_t strides = 0; strides < ways; ++strides) {
    add_image(test, {some_of(test.height, random), some_of(test.width, random)}, strides, random);
  }
  check_case(isa, test, random);
}

void test_sizes_and_strides(const Isa& isa) {
  Random random(1);
  for (const ImageSize slot : {ImageSize{1, 1}, ImageSize{7, 5}, ImageSize{3, 16},
                               ImageSize{17, 31}, ImageSize{8, 64}, ImageSize{21, 90}}) {
    for (const std::size_t channels : kChannels) {
      const bool large = slot.height * slot.width * channels > 2000;
      for (const PixelType type : kTypes) {
        for (const ImageLayout layout : kLayouts) {
          if (large && random() % 3 != 0) continue;  // a part of the slow ones is enough
          ImageCase test = empty_case("sizes and strides", slot, channels, layout, type, random);
          check_all_strides(isa, test, random);
        }
      }
    }
  }
}

void test_other_types(const Isa& isa) {
  Random random(7);
  for (const auto [in, out] : kOtherTypes) {
    for (const ImageLayout layout : kLayouts) {
      const auto check = [&](ImageSize slot, std::size_t channels) {
        ImageCase test = empty_case("other types", slot, channels, layout, out, random);
        test.in_type = in;
        test.padding &= 0x3f3f'3f3f'3f3f'3f3f;  // not a NaN, whose payload would change
        check_all_strides(isa, test, random);
      };
      for (const std::size_t channels : {1, 3, 5}) check({7, 21}, channels);
      check({1, 700}, 1);
    }
  }
}

// Every width of a row, and so every beginning of its padding.
void test_every_width(const Isa& isa) {
  Random random(2);
  for (const std::size_t channels : kChannels) {
    for (const PixelType type : kTypes) {
      for (const ImageLayout layout : kLayouts) {
        ImageCase test = empty_case("every width", {2, 80}, channels, layout, type, random);
        for (std::size_t width = 0; width <= test.width; ++width) {
          add_image(test, {1 + random() % 2, width}, random(), random);
        }
        check_case(isa, test, random);
      }
    }
  }
}

// Rows long enough for streaming stores, beside each other and with padding of any length between.
void test_long_rows(const Isa& isa) {
  Random random(3);
  for (const std::size_t width : {1024, 2051}) {
    for (const std::size_t channels : {1, 3, 4, 5}) {
      for (const PixelType type : kTypes) {
        for (const ImageLayout layout : kLayouts) {
          ImageCase test = empty_case("long rows", {5, width}, channels, layout, type, random);
          for (const std::size_t part : {width, width - 1, width / 2, std::size_t{100}}) {
            add_image(test, {random() % 6, part}, random(), random);
          }
          check_case(isa, test, random);
        }
      }
    }
  }
}

void test_many_channels(const Isa& isa) {
  Random random(4);
  for (const std::size_t channels : {64, 200, 4095, 4096, 4097}) {
    for (const ImageSize slot : {ImageSize{1, 1}, ImageSize{2, 3}}) {
      for (const ImageLayout layout : kLayouts) {
        const PixelType type = kTypes[random() % 4];
        ImageCase test = empty_case("many channels", slot, channels, layout, type, random);
        for (int i = 0; i < 4; ++i) {
          add_image(test, {some_of(slot.height, random), some_of(slot.width, random)}, random(),
                    random);
        }
        check_case(isa, test, random);
      }
    }
  }
}

void test_all_or_nothing(const Isa& isa) {
  Random random(5);
  for (const PixelType type : kTypes) {
    for (const ImageLayout layout : kLayouts) {
      for (const std::size_t channels : kChannels) {
        ImageCase full = empty_case("all full", {6, 21}, channels, layout, type, random);
        ImageCase empty = empty_case("all empty", {6, 21}, channels, layout, type, random);
        for (const ImageSize size : {ImageSize{0, 0}, ImageSize{0, 21}, ImageSize{6, 0}}) {
          add_image(full, {6, 21}, random(), random);
          add_image(empty, size, 0, random);
        }
        check_case(isa, full, random);
        check_case(isa, empty, random);
      }
      for (const ImageSize slot : {ImageSize{0, 4}, ImageSize{4, 0}, ImageSize{0, 0}}) {
        ImageCase test = empty_case("empty slot", slot, 3, layout, type, random);
        add_image(test, slot, 0, random);
        check_case(isa, test, random);
      }
    }
  }
}

void test_masks() {
  Random random(6);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const std::size_t height = random() % 20, width = random() % 90, rows = 5 * height;
    std::vector<ImageSize> sizes;
    std::vector<std::byte> all;
    for (int i = 0; i < 5; ++i) {
      const ImageSize size{some_of(height, random), some_of(width, random)};
      sizes.push_back(size);
      for (std::size_t y = 0; y < height; ++y) {
        for (std::size_t x = 0; x < width; ++x) {
          all.push_back(std::byte{y < size.height && x < size.width});
        }
      }
    }
    const std::size_t begin = random() % (rows + 1), end = begin + random() % (rows + 1 - begin);
    std::vector<std::byte> part(all.size(), MarkedOutput::kMark);
    const auto first = static_cast<std::ptrdiff_t>(begin * width);
    const auto last = static_cast<std::ptrdiff_t>(end * width);
    std::copy(all.begin() + first, all.begin() + last, part.begin() + first);

    MarkedOutput out(all.size(), random() % 64);
    pinfeed::kernels::mask_images(sizes.data(), height, width, out.data(), begin, end);
    CHECK(out.equals(part));
    pinfeed::kernels::mask_images(sizes.data(), height, width, out.data(), end, rows);
    pinfeed::kernels::mask_images(sizes.data(), height, width, out.data(), 0, begin);
    CHECK(out.equals(all));
  }
}

}  // namespace

void image_sizes_tests() {
  for (const Isa& isa : pinfeed::dispatch::compiled_isas()) {
    const auto run_isa = [&](const char* name, void (*test)(const Isa&)) {
      const std::string full = "images of any size on " + std::string(isa.name) + ": " + name;
      run_if(isa.supported(), "this CPU does not have it", full.c_str(), [&] { test(isa); });
    };
    run_isa("sizes and strides", test_sizes_and_strides);
    run_isa("other types", test_other_types);
    run_isa("every width", test_every_width);
    run_isa("long rows", test_long_rows);
    run_isa("many channels", test_many_channels);
    run_isa("all or nothing", test_all_or_nothing);
  }
  run("mask_images", test_masks);
}
