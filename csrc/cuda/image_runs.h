// Where the images of a batch come from, and how an output divides into runs.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/image_batch.h"
#include "cuda/memory.h"
#include "cuda/portable.h"

namespace pinfeed::cuda {

// The source's images, gathered by index or one after the other.
class SourceImages {
 public:
  SourceImages() = default;
  explicit SourceImages(const ImageBatch& batch)
      : images_(batch.images),
        stride_(batch.image_stride),
        count_(batch.source_count),
        indices_(batch.indices),
        bad_indices_(batch.bad_indices) {}

  // Null if there is no such image.
  PINFEED_BOTH const std::uint8_t* find(std::int64_t image) const {
    std::int64_t index = image;
    if (indices_ != nullptr) {
      index = load_int64(indices_ + image);
      if (index < 0) index += count_;
      if (index < 0 || index >= count_) {
        if (bad_indices_ == nullptr) stop_index_out_of_range();
        *bad_indices_ = 1;
        return nullptr;
      }
    }
    if (images_ == nullptr) return nullptr;  // a source without a pixel
    return images_ + index * stride_;
  }

 private:
  const std::uint8_t* images_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t count_ = 0;
  const std::int64_t* indices_ = nullptr;
  std::int32_t* bad_indices_ = nullptr;
};

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
