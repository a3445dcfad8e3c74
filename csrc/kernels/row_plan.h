// Plans which documents share a row of a fixed length.
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

// Common to both plans: there are fewer than 2^32 documents, none longer than a row; documents of
// length 0 are left out.
struct Documents {
  const std::int32_t* lengths;
  std::size_t count;
  std::int32_t row_length;
  std::uint32_t max_in_row;  // at least 1
};

// Best-fit decreasing: the longest document first, each into the row in which it leaves the least
// space, or else into a new row. The plan depends only on the documents and `key`, which randomizes
// the assignment of documents of equal length and their order in a row; with a null key nothing is
// random. The time is proportional to the documents plus the row length.
RowPlan best_fit(const Documents& documents, const std::uint64_t* key);

// First-fit: each document, in the given order, into the first row with space for it. A row holds
// its documents in that order, and rows are in the order of their first documents. `order`: the
// numbers of `count` documents; null for 0, 1, 2, ... Takes n log n.
RowPlan first_fit(const Documents& documents, const std::int64_t* order);

}  // namespace pinfeed::kernels
