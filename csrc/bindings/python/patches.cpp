// _core.patch_images: resizes and normalizes images, and cuts them into patches.
#include "kernels/patches.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/file_array.h"
#include "bindings/python/image_crops.h"
#include "bindings/python/image_samples.h"
#include "bindings/python/options.h"
#include "bindings/python/output.h"
#include "dispatch/dispatch.h"
#include "kernels/resize.h"
#include "runtime/thread_pool.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

using kernels::ImageBatch;
using kernels::ImageLayout;
using kernels::ImageResize;
using kernels::ImageSource;
using kernels::PatchMisfit;
using kernels::PatchOrder;
using kernels::PatchSizes;
using kernels::ResizedBatch;

using Size = std::array<std::int64_t, 2>;

// The options of the conversion to patches.
struct PatchOptions {
  PatchSizes sizes;
  std::int64_t merge = 1;
  std::int64_t temporal = 1;  // frames per patch
  std::int64_t pad_to = 0;    // patches per image; 0: all images' patches are concatenated
};

}  // namespace

template <>
struct Checks<PatchSizes> {
  static void check(const PatchSizes& sizes) {
    constexpr std::int64_t kMaxPixels = 1 << 15, kMaxPatches = std::int64_t{1} << 31;
    constexpr double kMax = std::int64_t{1} << 52;
    const auto is_in = [](auto value, auto low, auto high) {
      return value >= low && value <= high;
    };
    if (is_in(sizes.patch, 1, kMaxPixels) && is_in(sizes.multiple, 1, kMaxPixels) &&
        sizes.min_side >= 0 && is_in(sizes.min_pixels, 0.0, kMax) &&
        is_in(sizes.max_pixels, 0.0, kMax) && is_in(sizes.max_patches, 0, kMaxPatches)) {
      return;
    }
    throw wrong_value({"PatchSizes"}, "a number is out of range");
  }
};

template <>
struct Checks<PatchOptions> {
  static void check(const PatchOptions& options) {
    const bool are_whole =
        options.merge == 1 || (options.merge > 0 && options.sizes.max_patches == 0 &&
                               options.sizes.multiple % options.merge == 0);
    if (options.sizes.patch > 0 && are_whole && options.temporal > 0 &&
        options.temporal <= static_cast<std::int64_t>(PatchOrder::kMaxFrames) &&
        options.pad_to >= 0) {
      return;
    }
    throw wrong_value({"PatchOptions"}, "a number is out of range");
  }
};

namespace {

// The height and width to which an image is resized. Throws ValueError.
Size patched_size(const PatchSizes& sizes, std::int64_t height, std::int64_t width,
                  const Subject& subject) {
  Size patched{};
  const PatchMisfit misfit = kernels::find_patched_size(sizes, height, width, patched);
  if (misfit == PatchMisfit::none) return patched;
  const Size given{height, width};
  const std::string got = "height and width " + shape_text(given);
  if (misfit == PatchMisfit::too_small) {
    throw wrong_value(
        subject, "an image of at least " + std::to_string(sizes.min_side) + " pixels on each side",
        got, "leave it out, or enlarge it");
  }
  if (misfit == PatchMisfit::too_long) {
    throw wrong_value(subject, "an image whose longer side is at most 200 times the shorter", got,
                      "crop it");
  }
  throw wrong_value(
      subject, "sides that are multiples of " + std::to_string(sizes.patch * sizes.multiple), got,
      "pass min_pixels and max_pixels, or max_patches, to resize images to such sides");
}

// int64 of shape (N, 2), heights and widths in pixels; returns the same shape, in patches.
Integers patch_grids(const Integers& images, const PatchSizes& sizes, const std::string& name,
                     bool is_single) {
  Integers grids(std::vector<py::ssize_t>{images.shape(0), 2});
  for (py::ssize_t i = 0; i < images.shape(0); ++i) {
    const Size size = patched_size(sizes, images.at(i, 0), images.at(i, 1),
                                   Subject{name, is_single ? -1 : static_cast<std::int64_t>(i)});
    for (int axis = 0; axis < 2; ++axis) grids.mutable_at(i, axis) = size[axis] / sizes.patch;
  }
  return grids;
}

// Frames of one size, an image or a clip, and its patches.
struct Clip {
  std::size_t first;  // its first frame
  std::size_t frames;
  // groups of a patch's number of frames; the last frame is repeated to fill the last group
  std::size_t groups;
  Size size;  // of the crop of each frame, in pixels
  bool is_resized;
  std::size_t patches;
  std::size_t out;  // its first patch
};

bool have_one_size(const kernels::Transform& a, const kernels::Transform& b) {
  const auto same = [](const kernels::Crop& one, const kernels::Crop& other) {
    return one.height == other.height && one.width == other.width;
  };
  return same(a.source, b.source) && a.resized == b.resized && a.height == b.height &&
         a.width == b.width && same(a.resized_crop, b.resized_crop);
}

class Patches {
 public:
  // `frames`: the number of images per clip; empty: images are not clips.
  Patches(Images& images, const std::optional<Integers>& frames, const ImageFormat& format,
          const PatchOptions& options, const AugmentOptions& augment, const Draw& draw)
      : images_(images),
        format_(format),
        options_(options),
        scaling_(format, images.dtype(), images.channels(), images.name()),
        crops_(images, augment, draw, find_clips(frames, find_crops(images, augment, draw, "")),
               {}) {
    if (!scaling_.is_identity()) images.require_units(format);
  }

  // Returns the values, and the grid (clips, 3) of each clip's groups, rows and columns.
  py::tuple write(const OutputRequest& request, const std::string& function, std::size_t threads) {
    const DType dtype = out_dtype(format_);
    const std::int64_t p = options_.sizes.patch;
    checked_bytes(Shape{images_.channels(), options_.temporal, p, p}, dtype, function);
    const std::int64_t values = images_.channels() * options_.temporal * p * p;
    const auto clips = static_cast<std::int64_t>(clips_.size());
    Shape shape{clips, options_.pad_to, values};
    if (options_.pad_to == 0) shape = {static_cast<std::int64_t>(total_), values};
    const std::size_t bytes = checked_bytes(shape, dtype, function);
    const Output out = make_output(request, shape, dtype, function);
    if (request.is_given()) images_.require_apart(out, bytes, function);
    write_values(out.data, dtype, bytes, function, threads);
    const Output grid = make_output(request.elsewhere(), {clips, 3}, kInt64, function);
    auto* to = reinterpret_cast<std::int64_t*>(grid.data);
    for (const Clip& clip : clips_) {
      *to++ = static_cast<std::int64_t>(clip.groups);
      for (const std::int64_t side : clip.size) *to++ = side / p;
    }
    return py::make_tuple(out.array, grid.array);
  }

 private:
  // Resizes the crop of each image to a size of whole patches.
  std::shared_ptr<ImageCrops> find_clips(const std::optional<Integers>& frames,
                                         std::shared_ptr<ImageCrops> crops) {
    const std::size_t count = frames ? static_cast<std::size_t>(frames->size()) : images_.count();
    const auto temporal = static_cast<std::size_t>(options_.temporal);
    std::size_t first = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Clip clip{};
      clip.first = first;
      clip.frames = frames ? static_cast<std::size_t>(frames->at(static_cast<py::ssize_t>(i))) : 1;
      const Subject subject{images_.name(), static_cast<std::int64_t>(first)};
      const std::size_t left = images_.count() - first;
      first += clip.frames;
      if (clip.frames == 0 || clip.frames > left) {
        throw wrong_value(subject, "a clip of at least one frame", "none");
      }
      clip.groups = (clip.frames + temporal - 1) / temporal;
      const kernels::Transform first_transform = crops->transforms[clip.first];
      for (std::size_t frame = clip.first; frame < first; ++frame) {
        kernels::Transform& transform = crops->transforms[frame];
        if (!have_one_size(transform, first_transform)) {
          throw wrong_value(subject, "a clip whose frames have one size",
                            "frames of different sizes");
        }
        const auto [height, width] = Size{transform.visible().height, transform.visible().width};
        clip.size = patched_size(options_.sizes, height, width, subject);
        if (clip.size != Size{height, width}) transform.resize(clip.size[0], clip.size[1]);
        clip.is_resized = transform.resized;
      }
      const std::int64_t p = options_.sizes.patch;
      clip.patches = arrays::checked_bytes(
          Shape{static_cast<std::int64_t>(clip.groups), clip.size[0] / p, clip.size[1] / p}, 1,
          images_.name());
      const auto pad_to = static_cast<std::size_t>(options_.pad_to);
      if (pad_to > 0 && clip.patches > pad_to) {
        throw wrong_value(subject, "at most pad_to=" + std::to_string(pad_to) + " patches",
                          std::to_string(clip.patches), "pass max_patches to resize images to fit");
      }
      clip.out = pad_to > 0 ? i * pad_to : total_;
      total_ += clip.patches;
      checked_bytes(Shape{static_cast<std::int64_t>(total_)}, kUint8, images_.name());
      clips_.push_back(clip);
    }
    return crops;
  }

  // The number of rows of an image that are written together.
  std::size_t unit() const {
    return static_cast<std::size_t>(options_.sizes.patch * options_.merge);
  }
  std::size_t units(const Clip& clip) const {
    return clip.groups * (static_cast<std::size_t>(clip.size[0]) / unit());
  }

  void write_values(std::byte* out, DType dtype, std::size_t bytes, const std::string& function,
                    std::size_t threads) {
    if (bytes == 0) return;
    images_.plan_reads(threads);
    std::vector<ImageSource> sources = images_.sources();
    crops_.apply(sources);
    resizes_ = crops_.resizes();
    const ImageBatch batch{
        .sources = sources.data(),
        .count = 1,
        .height = 0,
        .width = 0,
        .channels = static_cast<std::size_t>(images_.channels()),
        .scale = scaling_.scales.data(),
        .bias = scaling_.biases.data(),
        .out = out,
        .out_layout = format_.output.back() == 'C' ? ImageLayout::hwc : ImageLayout::chw,
        .out_type = pixel_type(dtype),
        .streaming = worth_streaming_pixels(bytes),
        .in_type = item_type(images_.dtype(), dtype)};
    const auto write = [&](std::size_t begin, std::size_t end) {
      const Clip& last = clips_[end - 1];
      const std::vector<py::array> held =
          images_.read_late(clips_[begin].first, last.first + last.frames, sources);
      std::vector<std::size_t> ends;  // cumulative units of the clips
      for (std::size_t i = begin; i < end; ++i) {
        ends.push_back((ends.empty() ? 0 : ends.back()) + units(clips_[i]));
      }
      const std::size_t total = ends.back(), parts = threads > 1 ? 4 * std::min(threads, total) : 1;
      const py::gil_scoped_release unlocked;
      runtime::parallel_for_allocating(
          total, (total + parts - 1) / parts, threads, [&](std::size_t first, std::size_t last) {
            std::size_t i = std::ranges::upper_bound(ends, first) - ends.begin();
            for (; first < last; ++i) {
              const std::size_t before = i == 0 ? 0 : ends[i - 1], until = std::min(last, ends[i]);
              write_clip(batch, clips_[begin + i], first - before, until - before);
              if (until == ends[i]) pad(batch, clips_[begin + i]);
              first = until;
            }
          });
    };
    images_.write_when_read(clips_.size(), threads, function, write);
    images_.require_finite(scaling_, dtype, out, bytes);
  }

  std::size_t patch_bytes(const ImageBatch& batch) const {
    const auto size = static_cast<std::size_t>(options_.sizes.patch);
    return batch.channels * static_cast<std::size_t>(options_.temporal) * size * size *
           kernels::pixel_size(batch.out_type);
  }

  // Units [begin, end) of a clip, counted through its groups.
  void write_clip(const ImageBatch& batch, const Clip& clip, std::size_t begin,
                  std::size_t end) const {
    const auto height = static_cast<std::size_t>(clip.size[0]) / unit();
    const auto temporal = static_cast<std::size_t>(options_.temporal);
    ImageBatch group = batch;
    group.height = static_cast<std::size_t>(clip.size[0]);
    group.width = static_cast<std::size_t>(clip.size[1]);
    while (begin < end) {
      const std::size_t number = begin / height, row = begin % height;
      const std::size_t rows = std::min(height - row, end - begin);
      group.out = static_cast<std::byte*>(batch.out) +
                  (clip.out + number * (clip.patches / clip.groups)) * patch_bytes(batch);
      for (std::size_t slot = 0; slot < temporal;) {
        const std::size_t frame = number * temporal + slot;
        PatchOrder order{.size = static_cast<std::size_t>(options_.sizes.patch),
                         .merge = static_cast<std::size_t>(options_.merge),
                         .frames = temporal,
                         .slot = slot,
                         .slots = frame + 1 >= clip.frames ? temporal - slot : 1};
        group.sources = batch.sources + clip.first + frame;
        group.count = 1;
        if (!clip.is_resized && slot == 0 && frame + temporal <= clip.frames) {
          order.slots = group.count = temporal;
        }
        write_frames(group, order, clip, row * unit(), (row + rows) * unit());
        slot += order.slots;
      }
      begin += rows;
    }
  }

  void write_frames(const ImageBatch& frames, const PatchOrder& order, const Clip& clip,
                    std::size_t row_begin, std::size_t row_end) const {
    const kernels::ResizeRuns& runs = *dispatch::active_isa().resize;
    if (!clip.is_resized) {
      return kernels::write_patches(runs, order, frames, row_begin, row_end);
    }
    ResizedBatch resized{frames, &resizes_[clip.first], crops_.interpolation(), nullptr,
                         crops_.in_floats()};
    resized.patches = &order;
    kernels::resize_images(runs, resized, row_begin, row_end);
  }

  // Zeros after a clip's patches.
  void pad(const ImageBatch& batch, const Clip& clip) const {
    if (options_.pad_to == 0) return;
    const std::size_t patch = patch_bytes(batch);
    std::memset(static_cast<std::byte*>(batch.out) + (clip.out + clip.patches) * patch, 0,
                (static_cast<std::size_t>(options_.pad_to) - clip.patches) * patch);
  }

  Images& images_;
  const ImageFormat& format_;
  const PatchOptions& options_;
  Scaling scaling_;
  std::size_t total_ = 0;  // patches
  std::vector<Clip> clips_;
  Crops crops_;
  std::vector<std::optional<ImageResize>> resizes_;
};

py::tuple patch_images(py::object images, py::object indices, const std::optional<Integers>& frames,
                       const ImageFormat& format, const PatchOptions& options,
                       const AugmentOptions& augment, py::object target, const std::string& name,
                       std::size_t threads, std::uint64_t key, const Integers& samples) {
  Images checked(std::move(images), std::move(indices), format, true, name);
  return Patches(checked, frames, format, options, augment, Draw{key, samples})
      .write(OutputRequest(std::move(target), checked.is_tensor()), name, threads);
}

}  // namespace

void register_patches(py::module_& m) {
  bind_options<PatchSizes, &PatchSizes::patch, &PatchSizes::multiple, &PatchSizes::min_side,
               &PatchSizes::min_pixels, &PatchSizes::max_pixels, &PatchSizes::max_patches>(
      m, "PatchSizes");
  bind_options<PatchOptions, &PatchOptions::sizes, &PatchOptions::merge, &PatchOptions::temporal,
               &PatchOptions::pad_to>(m, "PatchOptions")
      .def_readonly("sizes", &PatchOptions::sizes);
  m.def("patch_grids", &patch_grids, py::arg("images"), py::arg("sizes"), py::arg("name"),
        py::arg("is_single"));
  m.def("patch_images", &patch_images, py::arg("images"), py::arg("indices"), py::arg("frames"),
        py::arg("format"), py::arg("options"), py::arg("augment"), py::arg("target"),
        py::arg("name"), py::arg("threads"), py::kw_only(), py::arg("key"), py::arg("samples"));
}

}  // namespace pinfeed::bindings
