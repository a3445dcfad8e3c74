// Matrices whose rows become columns: pixels to planes and back, for items of 2 to 16 bytes.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/memory.h"
#include "cuda/portable.h"

namespace pinfeed::cuda {

// An item of 16 bytes is moved as two of 8, for more than that its address need not be a multiple
// of.
template <int kBytes>
struct Item {
  static constexpr int kWords = kBytes <= 4 ? 1 : kBytes / 4;
  std::uint32_t at[kWords];
};

template <int kBytes>
PINFEED_BOTH Item<kBytes> load_item(const std::uint8_t* from) {
  Item<kBytes> item;
  if constexpr (kBytes == 2) {
    item.at[0] = load_small<2>(from);
  } else if constexpr (kBytes == 4) {
    item.at[0] = load_words<1>(from).at[0];
  } else {
    PINFEED_UNROLL
    for (int i = 0; i < kBytes / 8; ++i) {
      const Words<2> words = load_words<2>(from + 8 * i);
      item.at[2 * i] = words.at[0], item.at[2 * i + 1] = words.at[1];
    }
  }
  return item;
}

template <int kBytes>
PINFEED_BOTH void store_item_bytes(std::uint8_t* to, const Item<kBytes>& item) {
  if constexpr (kBytes == 2) {
    store_small<2>(to, item.at[0]);
  } else if constexpr (kBytes == 4) {
    store_words<1>(to, {{item.at[0]}});
  } else {
    PINFEED_UNROLL
    for (int i = 0; i < kBytes / 8; ++i) {
      store_words<2>(to + 8 * i, {{item.at[2 * i], item.at[2 * i + 1]}});
    }
  }
}

// Tiles in shared memory: read along the rows of the source, written along the rows of the output.
template <int kBytes>
struct Transpose {
  static constexpr int kThreads = 256;
  static constexpr int kTileItems = 8192 / kBytes;
  // Items of a thread whose loads are on their way at once.
  static constexpr int kAtOnce = kTileItems / kThreads < 4 ? kTileItems / kThreads : 4;
  static constexpr int kSharedBytes = kTileItems * kBytes;

  const std::uint8_t* source;
  std::int64_t matrix_stride;  // bytes, of the source
  std::int64_t rows;           // of each matrix of the source, without gaps
  std::int64_t columns;
  std::uint8_t* out;
  std::int64_t tiles;
  Divider tiles_of_matrix;
  Divider tiles_of_row;  // along the columns
  std::int32_t tile_rows;
  std::int32_t tile_columns;
  // Items from one row of the tile to the next: odd, so that a column's items lie in all banks.
  std::int32_t pitch;
  // 2^32 divided by tile_rows and by tile_columns, rounded up: exact for the few items of a tile.
  std::uint32_t by_rows;
  std::uint32_t by_columns;

  std::int64_t blocks() const { return tiles; }

  // Chooses the tile: narrow matrices are as wide as they are, others 32 items at least.
  void set_shape(std::int64_t count) {
    const auto narrow = static_cast<std::int32_t>(smaller(columns, 32));
    tile_rows = static_cast<std::int32_t>(smaller(rows, kTileItems / (narrow | 1)));
    if (tile_rows > 32) tile_rows -= tile_rows % 32;
    std::int32_t wide = kTileItems / tile_rows;
    wide -= wide % 2 == 0;  // with an odd pitch the tile still fits
    if (wide > 32 && wide < columns) wide -= wide % 32;
    tile_columns = columns <= 32 ? narrow : static_cast<std::int32_t>(smaller(columns, wide));
    pitch = tile_columns | 1;
    by_rows = reciprocal(tile_rows);
    by_columns = reciprocal(tile_columns);
    tiles_of_row = Divider(blocks_of(columns, tile_columns));
    tiles_of_matrix = Divider(blocks_of(rows, tile_rows) * tiles_of_row.divisor());
    tiles = count * tiles_of_matrix.divisor();
  }

  PINFEED_BOTH void gather(std::int64_t block, int thread, std::uint8_t* shared) const {
    const Tile tile = find(block);
    const std::uint8_t* const from =
        source + tile.matrix * matrix_stride + (tile.row * columns + tile.column) * kBytes;
    PINFEED_NO_UNROLL
    for (int first = thread; first < kTileItems; first += kAtOnce * kThreads) {
      Item<kBytes> items[kAtOnce];
      PINFEED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const Place place = divide(first + i * kThreads, tile_columns, by_columns);
        if (place.quotient >= tile.rows || place.remainder >= tile.columns) continue;
        items[i] = load_item<kBytes>(from + (place.quotient * columns + place.remainder) * kBytes);
      }
      PINFEED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const Place place = divide(first + i * kThreads, tile_columns, by_columns);
        if (place.quotient >= tile.rows || place.remainder >= tile.columns) continue;
        store_item_bytes(shared + (place.quotient * pitch + place.remainder) * kBytes, items[i]);
      }
    }
  }

  PINFEED_BOTH void write(std::int64_t block, int thread, const std::uint8_t* shared) const {
    const Tile tile = find(block);
    std::uint8_t* const to =
        out + (tile.matrix * rows * columns + tile.column * rows + tile.row) * kBytes;
    PINFEED_NO_UNROLL
    for (int first = thread; first < kTileItems; first += kAtOnce * kThreads) {
      PINFEED_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const Place place = divide(first + i * kThreads, tile_rows, by_rows);
        if (place.quotient >= tile.columns || place.remainder >= tile.rows) continue;
        const Item<kBytes> item =
            load_item<kBytes>(shared + (place.remainder * pitch + place.quotient) * kBytes);
        store_item_bytes(to + (place.quotient * rows + place.remainder) * kBytes, item);
      }
    }
  }

 private:
  struct Tile {
    std::int64_t matrix;
    std::int64_t row;  // its first
    std::int64_t column;
    std::int64_t rows;  // as many as the matrix still has
    std::int64_t columns;
  };
  struct Place {
    std::int32_t quotient;
    std::int32_t remainder;
  };

  static std::uint32_t reciprocal(std::int32_t divisor) {
    return divisor == 1 ? 0 : static_cast<std::uint32_t>(UINT32_MAX / divisor + 1);
  }

  PINFEED_BOTH static Place divide(std::int32_t item, std::int32_t divisor, std::uint32_t by) {
    const auto product = static_cast<std::uint64_t>(static_cast<std::uint32_t>(item)) * by;
    const std::int32_t quotient = by == 0 ? item : static_cast<std::int32_t>(product >> 32);
    return {quotient, item - quotient * divisor};
  }

  PINFEED_BOTH Tile find(std::int64_t block) const {
    const Division matrix = tiles_of_matrix.divide(block);
    const Division at = tiles_of_row.divide(matrix.remainder);
    Tile tile{};
    tile.matrix = matrix.quotient;
    tile.row = at.quotient * tile_rows;
    tile.column = at.remainder * tile_columns;
    tile.rows = smaller(tile_rows, rows - tile.row);
    tile.columns = smaller(tile_columns, columns - tile.column);
    return tile;
  }
};

// The same for items that lie anywhere in the source: each thread moves one.
template <int kBytes>
struct StridedItems {
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  const std::uint8_t* source;
  std::int64_t strides[4];  // bytes, of the axes of the output
  Divider sizes[3];         // of its inner axes
  std::uint8_t* out;
  std::int64_t items;

  std::int64_t blocks() const { return blocks_of(items, kThreads); }

  PINFEED_BOTH void run(std::int64_t block, int thread) const {
    const std::int64_t item = block * kThreads + thread;
    if (item >= items) return;
    const std::uint8_t* from = source;
    std::int64_t rest = item;
    PINFEED_UNROLL
    for (int axis = 2; axis >= 0; --axis) {
      const Division at = sizes[axis].divide(rest);
      from += at.remainder * strides[axis + 1];
      rest = at.quotient;
    }
    from += rest * strides[0];
    store_item_bytes(out + item * kBytes, load_item<kBytes>(from));
  }
};

}  // namespace pinfeed::cuda
