// Where the images of a batch come from, and how an output divides into runs.
#pragma once

#include <cstdint>

#include "cuda/divider.h"
#include "cuda/memory.h"
#include "cuda/portable.h"
#include "kernels/image_tensor.h"

namespace pinfeed::cuda {

using kernels::ImageLayout;
using kernels::ImageTensor;
using kernels::PixelType;

// The source's images, gathered by index or one after the other.
class SourceImages {
 public:
  SourceImages() = default;
  explicit SourceImages(const ImageTensor& batch)
      : images_(batch.images),
        stride_(batch.image_stride),
        count_(batch.source_count),
        indices_(batch.indices) {}

  PINFEED_BOTH const std::uint8_t* find(std::int64_t image) const {
    if (indices_ != nullptr) {
      image = load_int64(indices_ + image);
      if (image < 0) image += count_;
      if (image < 0 || image >= count_) stop_index_out_of_range();
    }
    if (images_ == nullptr) return nullptr;  // a source without a pixel
    return images_ + image * stride_;
  }

 private:
  const std::uint8_t* images_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t count_ = 0;
  const std::int64_t* indices_ = nullptr;
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
