// The table of kernels, chosen once for this CPU or by name.
#pragma once

#include <span>
#include <string_view>

#include "kernels/cast.h"
#include "kernels/permute_runs.h"
#include "kernels/resize.h"

namespace pinfeed::dispatch {

struct Isa {
  std::string_view name;
  bool (*supported)();
  const kernels::ResizeRuns* resize;
  const kernels::PermuteRuns* permute;
  const kernels::CastTable* casts;

  void normalize_images(const kernels::ImageBatch& batch, std::size_t begin,
                        std::size_t end) const {
    resize->normalize(batch, begin, end);
  }
};

// The compiled tables, best first; the last one, "scalar", runs everywhere.
std::span<const Isa> compiled_isas();

// The current table: the best supported one unless another was forced.
const Isa& active_isa();

// Forces the table called `name` for the whole process. Returns false, and changes nothing, if no
// such table was compiled or this CPU can't run it.
bool force_isa(std::string_view name);

}  // namespace pinfeed::dispatch
