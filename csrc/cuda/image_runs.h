// How an output of images divides into runs.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/portable.h"

namespace pinfeed::cuda {

// A group, what one thread writes at a time, and where it is.
struct GroupPlace {
  std::int64_t image;
  std::int64_t plane;
  std::int64_t row;
  std::int64_t group;  // of its run
};

// A run is a stretch of the output whose source bytes are adjacent: an image or a plane whose rows
// follow each other without gaps, else a row. Each divides into whole groups.
struct Runs {
  Divider groups;  // of a run
  Divider rows;    // runs of a plane
  Divider planes;  // of an image; 1 for pixels

  PINFEED_BOTH GroupPlace find(std::int64_t group) const {
    const Division run = groups.divide(group);
    const Division row = rows.divide(run.quotient);
    const Division plane = planes.divide(row.quotient);
    return {plane.quotient, plane.remainder, row.remainder, run.remainder};
  }
};

}  // namespace pinfeed::cuda
