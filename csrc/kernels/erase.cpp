#include "kernels/erase.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/philox.h"

namespace pinfeed::kernels {
namespace {

// Geometries count their steps from 0 on; this is none of them.
constexpr std::uint64_t kFirstDraw = std::uint64_t{1} << 63;

double between(double low, double high, std::uint64_t bits) {
  return low + uniform(bits) * (high - low);
}

std::int64_t below(std::int64_t size, std::uint64_t bits) {
  return static_cast<std::int64_t>(uniform(bits) * static_cast<double>(size));
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
    const double area = pixels * between(erasing.area[0], erasing.area[1], area_bits);
    const double ratio = std::exp(between(low, high, ratio_bits));
    // The mode of rounding is to nearest even, as Python's round.
    const double longest = std::nearbyint(std::sqrt(area * ratio));
    const double widest = std::nearbyint(std::sqrt(area / ratio));
    // Not the other way round: they may be infinite, or no numbers.
    const bool is_smaller =
        longest < static_cast<double>(height) && widest < static_cast<double>(width);
    if (!is_smaller) continue;
    const auto rows = static_cast<std::int64_t>(longest);
    const auto columns = static_cast<std::int64_t>(widest);
    const auto [top_bits, left_bits] = draw(number + 1);
    return {below(height - rows + 1, top_bits), below(width - columns + 1, left_bits), rows,
            columns};
  }
  return {};
}

void erase(void* image, ImageLayout layout, std::size_t height, std::size_t width,
           std::span<const Fill> values, const Rectangle& rectangle) {
  const auto top = static_cast<std::size_t>(rectangle.top);
  const auto left = static_cast<std::size_t>(rectangle.left);
  const auto rows = static_cast<std::size_t>(rectangle.height);
  const auto columns = static_cast<std::size_t>(rectangle.width);
  const std::size_t item = values[0].item_size();
  auto* const out = static_cast<std::byte*>(image);
  if (layout == ImageLayout::chw) {
    for (std::size_t c = 0; c < values.size(); ++c) {
      for (std::size_t y = 0; y < rows; ++y) {
        const std::size_t first = (c * height + top + y) * width + left;
        values[c].write(out + first * item, columns, false);
      }
    }
    return;
  }
  const std::size_t pixel = values.size() * item;
  std::vector<std::byte> row(columns * pixel);
  for (std::size_t place = 0; place < row.size(); place += pixel) {
    for (std::size_t c = 0; c < values.size(); ++c)
      values[c].write(&row[place + c * item], 1, false);
  }
  for (std::size_t y = 0; y < rows && columns > 0; ++y) {
    std::memcpy(out + ((top + y) * width + left) * pixel, row.data(), row.size());
  }
}

}  // namespace pinfeed::kernels
