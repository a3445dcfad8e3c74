// Gathers rows of bytes from random addresses into one output.
#pragma once

#include <cstddef>

namespace pinfeed::kernels {

// Copies rows[i], `row_bytes` long, to out + i * row_bytes for i in [begin, end). Sources and
// output must not overlap. Disjoint ranges may run at the same time. `streaming` as for copy_bytes,
// for large rows; the stores are done when this returns.
void gather_rows(const void* const* rows, std::size_t row_bytes, void* out, std::size_t begin,
                 std::size_t end, bool streaming);

}  // namespace pinfeed::kernels
