// normalize_images of every instruction set, and the masks of padded images.
#include "kernels/image.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/every_isa.h"
#include "tests/image_case.h"
#include "tests/rounding.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::kernels::Border;

// Images as large as their slots; smaller ones, with padding; crops, most of which extend beyond
// their images.
enum class Kind { whole, padded, cropped };
constexpr Kind kKinds[] = {Kind::whole, Kind::padded, Kind::cropped};

// The slot's size, a smaller size, or nothing.
std::size_t some_of(std::size_t size, Random& random) {
  return random() % 4 == 0 ? size : random() % (size + 1);
}

// The rows (or columns) of an image, and the first one of a crop of `slot` rows.
struct CropAxis {
  std::size_t size;
  std::ptrdiff_t first;

  CropAxis(std::size_t slot, Border border, Random& random) {
    const auto crop = static_cast<std::ptrdiff_t>(slot);
    size = border == Border::reflect ? (slot + 4) / 3 + random() % (slot + 2)
                                     : (border == Border::edge ? 1 : 0) + random() % (slot + 5);
    const auto image = static_cast<std::ptrdiff_t>(size);
    const bool mirrors = border == Border::reflect;
    const std::ptrdiff_t lowest = mirrors ? 1 - image : -crop - 2;
    const std::ptrdiff_t highest = mirrors ? 2 * image - 1 - crop : image + 2;
    first = lowest +
            static_cast<std::ptrdiff_t>(random() % static_cast<std::size_t>(highest - lowest + 1));
  }
};

// A batch of images of one kind.
class Batch {
 public:
  Batch(Kind kind, ImageSize slot, std::size_t channels, ImageLayout layout, PixelType type,
        Random& random, ScalarType in_type = ScalarType::uint8)
      : test_{"", {}, slot.height, slot.width, channels, layout, type, random()},
        kind_(kind),
        fill_(channels * scalar_size(in_type)) {
    test_.in_type = in_type;
    test_.padding = random() % 4 == 0 ? 0 : random();
    // Not a NaN, whose payload would change.
    if (in_type != ScalarType::uint8) test_.padding &= 0x3f3f'3f3f'3f3f'3f3f;
    test_.per_channel = random() % 2 == 0;
    const std::size_t pixel = fill_.size(), item = scalar_size(in_type);
    for (std::uint8_t& value : fill_) value = static_cast<std::uint8_t>(random());
    const std::size_t period = random() % 3 == 0 ? item : pixel;
    fill_.resize(pixel * slot.width);
    for (std::size_t i = period; i < fill_.size(); ++i) fill_[i] = fill_[i - period];
  }

  // Adds an image of a size in one of the memory layouts for it.
  void add(ImageSize size, std::size_t way, Random& random) {
    const std::vector<Strides> all = all_strides(size.height, size.width, test_.channels);
    test_.sources.push_back(
        place_source(size, test_.channels, all[way % all.size()], random, test_.in_type));
    if (kind_ == Kind::padded) test_.sizes.push_back(size);
  }

  void add_any(std::size_t way, Random& random) {
    if (kind_ == Kind::padded) {
      return add({some_of(test_.height, random), some_of(test_.width, random)}, way, random);
    }
    if (kind_ == Kind::whole || random() % 4 == 0) {
      return add({test_.height, test_.width}, way, random);
    }
    const auto border = static_cast<Border>(random() % 3);
    const CropAxis rows(test_.height, border, random), columns(test_.width, border, random);
    add({rows.size, columns.size}, way, random);
    test_.sources.back().crop = &crops_.emplace_back(
        ImageCrop{rows.first, columns.first, rows.size, columns.size, border, fill_.data()});
  }

  // Checks the batch, in messages called `what`; first adds images in all memory layouts if there
  // are none, in half of the cases as the frames of clips.
  void check(const Isa& isa, const char* what, Random& random) {
    test_.what = what;
    if (test_.sources.empty()) {
      std::vector<std::size_t> ways(all_strides(1, 1, 1).size());
      std::iota(ways.begin(), ways.end(), 0);
      std::shuffle(ways.begin(), ways.end(), random);
      for (const std::size_t way : ways) add_any(way, random);
      test_.frames = random() % 2 == 0 ? 1 : 4;
    }
    check_case(isa, test_, random);
  }

 private:
  ImageCase test_;
  Kind kind_;
  std::vector<std::uint8_t> fill_;  // of the crops: a row
  std::deque<ImageCrop> crops_;
};

template <class Check>
void for_each_output(const Check& check) {
  for (const PixelType type : kTypes) {
    for (const ImageLayout layout : kLayouts) check(type, layout);
  }
}

void test_sizes_and_strides(const Isa& isa) {
  Random random(3);
  for (const Kind kind : kKinds) {
    for (const ImageSize slot :
         {ImageSize{1, 1}, ImageSize{7, 5}, ImageSize{3, 16}, ImageSize{6, 21}, ImageSize{17, 31},
          ImageSize{8, 64}, ImageSize{40, 41}, ImageSize{21, 90}, ImageSize{65, 97}}) {
      for (const std::size_t channels : kChannels) {
        const bool large = slot.height * slot.width * channels > 2000;
        for_each_output([&](PixelType type, ImageLayout layout) {
          if (large && random() % 8 != 0) return;  // a part of the slow ones is enough
          Batch(kind, slot, channels, layout, type, random).check(isa, "sizes and strides", random);
        });
      }
    }
  }
}

void test_other_types(const Isa& isa) {
  Random random(7);
  for (const Kind kind : kKinds) {
    for (const auto [in, out] : kOtherTypes) {
      for (const ImageLayout layout : kLayouts) {
        for (const std::size_t channels : {1, 3, 4, 5}) {
          Batch(kind, {7, 21}, channels, layout, out, random, in).check(isa, "types", random);
        }
        // More than fits a tile.
        Batch(kind, {1, 700}, 3, layout, out, random, in).check(isa, "long rows of types", random);
      }
    }
  }
}

// Every width of a row, and so every beginning of its padding.
void test_every_width(const Isa& isa) {
  Random random(2);
  for (const std::size_t channels : kChannels) {
    for_each_output([&](PixelType type, ImageLayout layout) {
      Batch batch(Kind::padded, {2, 80}, channels, layout, type, random);
      for (std::size_t width = 0; width <= 80; ++width) {
        batch.add({1 + random() % 2, width}, random(), random);
      }
      batch.check(isa, "every width", random);
    });
  }
}

// Runs that fill several of the aligned buffers before streaming stores.
void test_long_rows(const Isa& isa) {
  Random random(7);
  for (const Kind kind : kKinds) {
    for (const std::size_t width : {1024, 2051, 4096, 5003}) {
      for (const std::size_t channels : {1, 3, 4, 5}) {
        for (const PixelType type : kTypes) {
          Batch batch(kind, {2, width}, channels, kLayouts[random() % 2], type, random);
          for (int i = 0; i < 8; ++i) batch.add_any(random(), random);
          batch.check(isa, "long rows", random);
        }
      }
    }
  }
}

// Around the limits of tiles and tables.
void test_many_channels(const Isa& isa) {
  Random random(6);
  for (const Kind kind : kKinds) {
    for (const std::size_t channels : {63, 64, 65, 200, 1365, 4095, 4096, 4097, 5000}) {
      for (const ImageSize slot : {ImageSize{1, 1}, ImageSize{2, 3}, ImageSize{1, 17}}) {
        for (const ImageLayout layout : kLayouts) {
          Batch batch(kind, slot, channels, layout, kTypes[random() % 4], random);
          for (int i = 0; i < 4; ++i) batch.add_any(random(), random);
          batch.check(isa, "many channels", random);
        }
      }
    }
  }
}

void test_all_or_nothing(const Isa& isa) {
  Random random(5);
  for_each_output([&](PixelType type, ImageLayout layout) {
    for (const std::size_t channels : kChannels) {
      Batch full(Kind::padded, {6, 21}, channels, layout, type, random);
      Batch empty(Kind::padded, {6, 21}, channels, layout, type, random);
      for (const ImageSize size : {ImageSize{0, 0}, ImageSize{0, 21}, ImageSize{6, 0}}) {
        full.add({6, 21}, random(), random);
        empty.add(size, 0, random);
      }
      full.check(isa, "all full", random);
      empty.check(isa, "all empty", random);
    }
    for (const ImageSize slot : {ImageSize{0, 4}, ImageSize{4, 0}, ImageSize{0, 0}}) {
      for (const Kind kind : {Kind::whole, Kind::padded}) {
        Batch batch(kind, slot, 3, layout, type, random);
        batch.add(slot, 0, random);
        batch.check(isa, "an empty slot", random);
      }
    }
    const ImageSource source{source_memory().end(), 0, 0, 0};
    check_case(isa, {"no images", {}, 4, 4, 3, layout, type}, random);
    check_case(isa, {"no channels", {source}, 4, 4, 0, layout, type}, random);
  });
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
          // Many channels need fewer ranges of the constants.
          for (std::size_t pair = 0; pair < 60; pair += channels) {
            check_case(isa, {"all bytes", {source}, 16, 16, channels, out, type, random()}, random);
          }
        }
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

void image_tests() {
  run_on_isas("images: all byte values", test_byte_values);
  run_on_isas("images: rounding to 16 bits", test_rounding);
  run_on_isas("images: sizes and strides", test_sizes_and_strides);
  run_on_isas("images: other types", test_other_types);
  run_on_isas("images: gathered sources", test_gathered_sources);
  run_on_isas("images: every width", test_every_width);
  run_on_isas("images: many channels", test_many_channels);
  run_on_isas("images: long rows", test_long_rows);
  run_on_isas("images: all or nothing", test_all_or_nothing);
  run("mask_images", test_masks);
}
