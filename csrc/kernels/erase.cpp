#include "kernels/erase.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/item.h"
#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

// Geometries number their steps from 0; these numbers must differ: one per draw for the rectangle,
// and one per 8 values of a row in it.
constexpr std::uint64_t kFirstDraw = std::uint64_t{1} << 63;
constexpr std::uint64_t kFirstValues = kFirstDraw | std::uint64_t{1} << 62;

template <class Item>
void write(const ImagePlaces& image, const ErasingValues& values, const Rectangle& rectangle,
           std::uint64_t key, std::int64_t sample) {
  const auto rows = static_cast<std::size_t>(rectangle.height);
  const auto columns = static_cast<std::size_t>(rectangle.width);
  const auto* const items = static_cast<const Item*>(values.items);
  const Philox random(key);
  std::uint64_t draw = kFirstValues;
  std::vector<Item> drawn(values.are_drawn ? image.channels * columns + 7 : 0);
  // A row of the rectangle in memory: pixels, or a run for each channel.
  const bool is_packed = image.column_stride != sizeof(Item);
  std::vector<Item> row(image.channels * columns);
  const std::size_t run = is_packed ? row.size() : columns;
  for (std::size_t y = 0; y < rows && columns > 0; ++y) {
    for (std::size_t i = 0; i < row.size() && values.are_drawn; i += 8) {
      const auto bits = random(static_cast<std::uint64_t>(sample), draw++);
      for (std::size_t k = 0; k < 8; ++k) drawn[i + k] = items[bits[k / 4] >> k % 4 * 16 & 0xFFFF];
    }
    for (std::size_t c = 0; c < image.channels && (y == 0 || values.are_drawn); ++c) {
      for (std::size_t x = 0; x < columns; ++x) {
        const Item item = values.are_drawn ? drawn[c * columns + x] : items[c];
        row[is_packed ? x * image.channels + c : c * columns + x] = item;
      }
    }
    const std::size_t first = (static_cast<std::size_t>(rectangle.top) + y) * image.row_stride +
                              static_cast<std::size_t>(rectangle.left) * image.column_stride;
    for (std::size_t frame = 0; frame < image.frames; ++frame) {
      std::byte* out = image.data + frame * image.frame_stride + first;
      for (std::size_t begin = 0; begin < row.size(); begin += run, out += image.channel_stride) {
        std::memcpy(out, &row[begin], run * sizeof(Item));
      }
    }
  }
}

}  // namespace

Rectangle draw_rectangle(const Erasing& erasing, std::int64_t height, std::int64_t width,
                         std::uint64_t key, std::int64_t sample) {
  const Philox random(key);
  const auto draw = [&](std::uint64_t number) {
    return random(static_cast<std::uint64_t>(sample), kFirstDraw | number);
  };
  if (uniform(draw(0)[0]) >= erasing.probability) return {};
  const double pixels = static_cast<double>(height) * static_cast<double>(width);
  const double low = std::log(erasing.ratio[0]), high = std::log(erasing.ratio[1]);
  for (std::uint64_t number = 1; number <= 20; number += 2) {
    const auto [area_bits, ratio_bits] = draw(number);
    const double area = pixels * between(erasing.area, area_bits);
    const double ratio = std::exp(between(low, high, ratio_bits));
    // The rounding mode is to nearest even, as in Python's round.
    const double longest = std::nearbyint(std::sqrt(area * ratio));
    const double widest = std::nearbyint(std::sqrt(area / ratio));
    // False for infinity and NaN.
    const bool is_smaller =
        longest < static_cast<double>(height) && widest < static_cast<double>(width);
    if (!is_smaller) continue;
    const auto rows = static_cast<std::int64_t>(longest);
    const auto columns = static_cast<std::int64_t>(widest);
    const auto [top_bits, left_bits] = draw(number + 1);
    return {one_of(height - rows + 1, top_bits), one_of(width - columns + 1, left_bits), rows,
            columns};
  }
  return {};
}

void erase(const ImagePlaces& image, const ErasingValues& values, const Rectangle& rectangle,
           std::uint64_t key, std::int64_t sample) {
  visit_item_size(image.item_size, [&](auto size) {
    write<std::array<std::byte, size>>(image, values, rectangle, key, sample);
  });
}

}  // namespace pinfeed::kernels
