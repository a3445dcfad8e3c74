// Splits an output of images into runs and groups.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/portable.h"

namespace pinfeed::cuda {

// A group is the output that one thread writes at a time; this is its position.
struct GroupPosition {
  std::int64_t image;
  std::int64_t plane;
  std::int64_t row;
  std::int64_t group;  // in its run
};

// A run is a range of the output whose source bytes are adjacent: an image or a plane without gaps
// between its rows, else a row. Each is a whole number of groups.
struct Runs {
  Divider groups;  // per run
  Divider rows;    // runs per plane
  Divider planes;  // per image; 1 for pixels

  PINFEED_BOTH GroupPosition find(std::int64_t group) const {
    const Division run = groups.divide(group);
    const Division row = rows.divide(run.quotient);
    const Division plane = planes.divide(row.quotient);
    return {plane.quotient, plane.remainder, row.remainder, run.remainder};
  }
};

}  // namespace pinfeed::cuda
