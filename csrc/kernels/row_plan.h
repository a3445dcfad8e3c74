// Which documents share a row of a fixed length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinfeed::kernels {

// Documents in rows: row r holds order[offsets[r]:offsets[r + 1]].
struct RowPlan {
  std::vector<std::uint32_t> order;
  std::vector<std::int64_t> offsets;
};

// What the plans have in common. There are fewer than 2^32 documents; those of length 0 come into
// no row; none is longer than a row.
struct Documents {
  const std::int32_t* lengths;
  std::size_t count;
  std::int32_t row_length;
  std::uint32_t most_in_row;  // at least 1
};

// Best-fit decreasing: the longest document first, each into the row that it leaves the least room
// in, or else into a new one. The plan follows from the documents and `key` alone, which says what
// is random: which of the documents of one length goes where, and their order in a row. A null key:
// nothing is. Takes time in proportion to the documents and the row length.
RowPlan best_fit(const Documents& documents, const std::uint64_t* key);

// First-fit: each document, in the order given, into the first row with room for it. A row holds
// its documents in that order, and rows come in the order of their first documents. `order`: of
// `count` documents' numbers; null for 0, 1, 2, ... Takes n log n.
RowPlan first_fit(const Documents& documents, const std::int64_t* order);

}  // namespace pinfeed::kernels
