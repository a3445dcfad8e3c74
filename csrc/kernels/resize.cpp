// Walks the rows of a batch of images that are resized.
#include "kernels/resize.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/copy.h"
#include "kernels/lookahead.h"
#include "kernels/patches.h"

namespace pinfeed::kernels {
namespace {

// Resized rows wait in the cache until a few of them are normalized together.
constexpr std::size_t kStageBytes = std::size_t{48} << 10;

// Writes one pixel of `bytes` bytes `count` times.
void repeat_pixel(const std::uint8_t* pixel, std::size_t bytes, std::size_t count,
                  std::uint8_t* to) {
  for (std::size_t i = 0; i < count; ++i) to = std::copy_n(pixel, bytes, to);
}

// Copies the pixel of each output. Some bytes more than a pixel are copied at a time: both sides
// have kRunSlack, and the next pixel overwrites the excess.
void pick(const Taps& columns, const std::uint8_t* row, std::size_t bytes, std::uint8_t* out) {
  // Local copies, because `out` might alias the members, which would be reloaded for each pixel.
  const std::size_t outputs = columns.outputs();
  const std::size_t* const firsts = columns.firsts();
  const auto pick_pixels = [&](auto size, auto copied) {
    for (std::size_t x = 0; x < outputs; ++x) {
      std::memcpy(out + x * size, row + firsts[x] * size, copied);
    }
  };
  constexpr std::integral_constant<std::size_t, 1> one;
  constexpr std::integral_constant<std::size_t, 3> three;
  constexpr std::integral_constant<std::size_t, 4> four;
  constexpr std::integral_constant<std::size_t, 16> sixteen;
  if (bytes == one) return pick_pixels(one, one);
  if (bytes == three) return pick_pixels(three, four);
  if (bytes <= sixteen) return pick_pixels(bytes, sixteen);
  pick_pixels(bytes, bytes);
}

// Resizes one image after the other. A source row is read once, resized horizontally, and kept
// while output rows need it.
class Resizer {
 public:
  // Call before write_row(), for all rows of the image's slot.
  void begin(const ResizeRuns& runs, const ResizedBatch& batch, std::size_t image) {
    const ImageBatch& images = batch.images;
    const ImageResize& resize = *batch.resizes[image];
    runs_ = &runs;
    sums_ = batch.in_floats ? runs.floats : runs.bytes;
    source_ = &images.sources[image];
    resize_ = &resize;
    item_ = scalar_size(images.in_type);
    types_ = copied_as(item_);
    if (batch.in_floats) types_ = {images.in_type, PixelType::float32};
    channels_ = images.channels;
    pixel_ = channels_ * pixel_size(types_.out);
    const ImageSize slot = images.size_of(image);
    width_ = slot.width;
    scale_.assign(channels_, 1.0F);
    bias_.assign(channels_, -0.0F);
    const Interpolation interpolation = resize.interpolation.value_or(batch.interpolation);
    is_nearest_ = takes_nearest(interpolation);
    rows_.find({resize.source.height, resize.resized.height, resize.top, slot.height,
                resize.flipped_rows, resize.border, interpolation, batch.in_floats});
    columns_.find({resize.source.width, resize.resized.width, resize.left, slot.width,
                   resize.flipped_columns, resize.border, interpolation, batch.in_floats});
    const std::size_t taps = is_nearest_ ? 1 : 2 * rows_.pairs();
    slot_bytes_ = columns_.outputs() * pixel_ + kRunSlack;
    resized_.resize(taps * slot_bytes_);
    held_.assign(taps, kNone);
    row_pointers_.resize(taps);
    row_.resize((columns_.source_size() + 2 * columns_.pairs()) * pixel_ + kRunSlack);
  }

  // Row y of the slot, and up to kRunSlack bytes behind it.
  void write_row(std::size_t y, std::uint8_t* to) {
    const std::size_t skipped = columns_.skipped(), outputs = columns_.outputs();
    if (y < rows_.skipped() || y >= rows_.skipped() + rows_.outputs()) {
      return repeat_pixel(resize_->fill, pixel_, width_, to);
    }
    if (skipped > 0) repeat_pixel(resize_->fill, pixel_, skipped, to);
    if (outputs > 0) write_outputs(y - rows_.skipped(), to + skipped * pixel_);
    const std::size_t end = skipped + outputs;
    if (end < width_) repeat_pixel(resize_->fill, pixel_, width_ - end, to + end * pixel_);
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  // Rows of a crop are far apart, so the hardware doesn't predict the next one.
  static constexpr std::ptrdiff_t kRowsAhead = 4;

  void write_outputs(std::size_t output, std::uint8_t* to) {
    const std::size_t bytes = columns_.outputs() * pixel_, first = rows_.first(output);
    if (is_nearest_) {
      std::memcpy(to, resized_row(first), bytes);
      return;
    }
    for (std::size_t t = 0; t < row_pointers_.size(); ++t) {
      // Beyond the last row the weights are 0.
      row_pointers_[t] = resized_row(std::min(first + t, rows_.source_size() - 1));
    }
    sums_->along_columns(rows_, output, row_pointers_.data(), bytes, to);
  }

  // A row of the source, counted from the first used row, resized.
  const std::uint8_t* resized_row(std::size_t row) {
    const std::size_t slot = row % held_.size();
    std::uint8_t* const resized = &resized_[slot * slot_bytes_];
    if (held_[slot] == row) return resized;
    held_[slot] = row;
    read_row(rows_.source_begin() + row);
    if (is_nearest_) {
      pick(columns_, row_.data(), pixel_, resized);
    } else {
      sums_->along_row(columns_, row_.data(), channels_, resized);
    }
    return resized;
  }

  // Makes the used pixels of a source row adjacent, in the type that is resized.
  void read_row(std::size_t row) {
    ImageCrop crop;
    const ImageSource source =
        seen_from(static_cast<std::ptrdiff_t>(row),
                  static_cast<std::ptrdiff_t>(columns_.source_begin()), *source_, crop);
    const std::size_t source_pixel = channels_ * item_;
    if (source.crop == nullptr &&
        (channels_ == 1 || source.channel_stride == static_cast<std::ptrdiff_t>(item_)) &&
        source.column_stride == static_cast<std::ptrdiff_t>(source_pixel)) {
      const std::size_t bytes = columns_.source_size() * source_pixel;
      if (row + kRowsAhead < resize_->source.height) {
        prefetch_lines(source.data + kRowsAhead * source.row_stride, bytes);
      }
      if (types_.out == PixelType::float32) {
        runs_->casts->find(types_.in, ScalarType::float32)(source.data, bytes / item_, row_.data());
      } else {
        std::memcpy(row_.data(), source.data, bytes);
      }
      return;
    }
    const PixelRows pixels{source.data,           0, source.column_stride,
                           source.channel_stride, 1, columns_.source_size()};
    if (source.crop == nullptr && runs_->images != nullptr && types_.out != PixelType::float32 &&
        can_pick(pixels, channels_, item_)) {
      if (row + kRowsAhead < resize_->source.height) {
        const auto width = static_cast<std::ptrdiff_t>(pixels.columns) * pixels.column_stride;
        prefetch_lines(source.data + kRowsAhead * source.row_stride + std::min(width, {}),
                       static_cast<std::size_t>(std::abs(width)));
      }
      return runs_->images->pick_pixels(pixels, channels_, item_, row_.data(), 0);
    }
    runs_->normalize({.sources = &source,
                      .count = 1,
                      .height = 1,
                      .width = columns_.source_size(),
                      .channels = channels_,
                      .scale = scale_.data(),
                      .bias = bias_.data(),
                      .out = row_.data(),
                      .out_layout = ImageLayout::hwc,
                      .out_type = types_.out,
                      .streaming = false,
                      .in_type = types_.in},
                     0, 1);
  }

  const ResizeRuns* runs_ = nullptr;
  const ResizeSums* sums_ = nullptr;
  const ImageSource* source_ = nullptr;
  const ImageResize* resize_ = nullptr;
  std::size_t item_ = 0;  // bytes
  Copied types_ = {};     // of the source, and of the resized values
  std::size_t channels_ = 0;
  std::size_t pixel_ = 0;     // bytes of a resized pixel
  std::vector<float> scale_;  // constants that
  std::vector<float> bias_;   // keep every value: a bias of 0 would not keep -0
  std::size_t width_ = 0;
  bool is_nearest_ = false;
  Taps rows_;
  Taps columns_;
  std::vector<std::uint8_t> row_;
  std::size_t slot_bytes_ = 0;
  std::vector<std::uint8_t> resized_;  // one row per tap of an output
  std::vector<std::size_t> held_;      // their source rows
  std::vector<const std::uint8_t*> row_pointers_;
};

// The mean of the gray of pixels if there are three channels, else of all values; divided by their
// number in float32, like torchvision, whose sum is exact up to 2^24. This sum is always exact.
float mean_of(const ResizeRuns& runs, const std::uint8_t* values, std::size_t pixels,
              std::size_t channels) {
  const std::size_t count = channels == 3 ? pixels : pixels * channels;
  if (count == 0) return 0;
  const std::uint64_t sum = channels == 3
                                ? runs.gray_sum(values, pixels)
                                : std::accumulate(values, values + count, std::uint64_t{0});
  return static_cast<float>(sum) / static_cast<float>(count);
}

// A batch of one of the images. If other planes lie between its planes, it is the first frame of a
// clip in the result.
ImageBatch only(std::size_t image, const ImageBatch& batch) {
  const bool chw = batch.out_layout == ImageLayout::chw;
  const std::size_t planes = chw ? plane_index(batch, image, 0) : image * batch.channels;
  const std::size_t bytes = batch.height * batch.width * pixel_size(batch.out_type);
  ImageBatch one = batch;
  one.sources += image;
  one.count = 1;
  one.out = static_cast<std::byte*>(batch.out) + planes * bytes;
  return one;
}

void normalize(const ResizeRuns& runs, const ResizedBatch& batch, const ImageBatch& images,
               std::size_t begin, std::size_t end) {
  if (batch.patches == nullptr) return runs.normalize(images, begin, end);
  write_patches(runs, *batch.patches, images, begin, end);
}

// Rows [begin, end) of one image; write_rows(y, count, to) writes them to a stage first.
template <class WriteRows>
void write_staged(const ResizeRuns& runs, const ResizedBatch& batch, std::size_t image,
                  std::size_t begin, std::size_t end, const WriteRows& write_rows) {
  thread_local std::vector<std::uint8_t> stage;
  const ImageBatch& images = batch.images;
  const std::size_t item = scalar_size(batch.resized_type()), pixel = images.channels * item;
  const ImageSize size = images.size_of(image);
  const std::size_t height = size.height, width = size.width;
  const std::size_t row_bytes = width * pixel;
  // A mean needs all rows of the image at once, including those that another thread writes.
  const bool need_mean = batch.colors != nullptr && batch.colors->need_mean();
  // The stage holds the rows that fit, in whole patches.
  const std::size_t step = batch.patches == nullptr ? 1 : batch.patches->rows();
  const std::size_t rows =
      need_mean
          ? height
          : std::max<std::size_t>(kStageBytes / std::max<std::size_t>(row_bytes, 1) / step, 1) *
                step;
  const std::size_t first = need_mean ? 0 : begin;
  const std::size_t last = need_mean ? height : std::min(end, height);
  stage.resize(rows * row_bytes + kRunSlack);

  const ImageSource staged{stage.data(), static_cast<std::ptrdiff_t>(row_bytes),
                           static_cast<std::ptrdiff_t>(pixel), static_cast<std::ptrdiff_t>(item)};
  ImageBatch one = only(image, images);
  ImagePadding padding{};
  if (images.padding != nullptr) {
    padding = *images.padding;
    padding.sizes += image;
    one.padding = &padding;
  }
  one.in_type = batch.resized_type();
  one.sources = &staged;
  const auto change = [&](const ColorChanges& changes, std::size_t pixels) {
    for (const auto& change : changes) {
      if (const auto* table = std::get_if<ColorTable>(&change)) {
        runs.recolor(*table, stage.data(), pixels * pixel);
      } else if (images.channels == 3) {
        runs.saturate(std::get<Saturation>(change), stage.data(), pixels);
      }
    }
  };
  const auto mean = [&](const ColorChanges& changes) {
    change(changes, rows * width);
    return mean_of(runs, stage.data(), rows * width, images.channels);
  };
  std::optional<ColorChanges> changes;
  for (std::size_t y = first; y < last; y += rows) {
    const std::size_t count = std::min(rows, last - y);
    write_rows(y, count, stage.data());
    if (batch.colors != nullptr && !changes) changes = draw_changes(*batch.colors, image, mean);
    if (changes) change(*changes, count * width);
    one.first_row = y;
    const std::size_t from = std::max(y, begin), to = std::min(y + count, end);
    if (from < to) normalize(runs, batch, one, from, to);
  }
  if (end > height) runs.normalize(one, std::max(begin, height), end);  // the padding below
}

void write_resized(const ResizeRuns& runs, const ResizedBatch& batch, std::size_t image,
                   std::size_t begin, std::size_t end) {
  thread_local Resizer resizer;
  const ImageBatch& images = batch.images;
  try {
    resizer.begin(runs, batch, image);
  } catch (...) {
    resizer = {};  // the next image shares none of its state
    throw;
  }
  const std::size_t row_bytes =
      images.size_of(image).width * images.channels * scalar_size(batch.resized_type());
  write_staged(runs, batch, image, begin, end,
               [&](std::size_t y, std::size_t count, std::uint8_t* to) {
                 for (std::size_t row = 0; row < count; ++row, to += row_bytes) {
                   resizer.write_row(y + row, to);
                 }
               });
}

void write_recolored(const ResizeRuns& runs, const ResizedBatch& batch, std::size_t image,
                     std::size_t begin, std::size_t end) {
  ImageBatch one = only(image, batch.images);
  one.width = batch.images.size_of(image).width;
  one.padding = nullptr;
  one.out_layout = ImageLayout::hwc;
  one.out_type = PixelType::uint8;
  one.streaming = false;
  write_staged(
      runs, batch, image, begin, end, [&](std::size_t y, std::size_t count, std::uint8_t* to) {
        ImageCrop crop;
        const ImageSource source =
            seen_from(static_cast<std::ptrdiff_t>(y), 0, batch.images.sources[image], crop);
        one.sources = &source;
        one.height = count;
        one.out = to;
        runs.normalize(one, 0, count);
      });
}

}  // namespace

void resize_images(const ResizeRuns& runs, const ResizedBatch& batch, std::size_t row_begin,
                   std::size_t row_end) {
  const std::size_t height = batch.images.height;
  if (batch.images.width == 0 || batch.images.channels == 0) return;
  for (std::size_t row = row_begin; row < row_end;) {
    const std::size_t image = row / height, y = row % height;
    const std::size_t rows = std::min(height - y, row_end - row);
    if (batch.resizes != nullptr && batch.resizes[image]) {
      write_resized(runs, batch, image, y, y + rows);
    } else if (batch.colors != nullptr) {
      write_recolored(runs, batch, image, y, y + rows);
    } else {
      normalize(runs, batch, batch.images, row, row + rows);
    }
    row += rows;
  }
}

}  // namespace pinfeed::kernels
