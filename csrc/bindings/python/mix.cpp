// _core.mix_images: MixUp of a batch that is there.
#include "kernels/mix.h"

#include <algorithm>
#include <string>

#include "bindings/python/array_view.h"
#include "bindings/python/parallel.h"

namespace py = pybind11;

namespace pinfeed::bindings {
namespace {

// `images`: contiguous float32 of this process, at least one; in any order but for the first axis.
void mix_images(const py::object& images, double share, const std::string& name,
                std::size_t threads) {
  const ArrayView view = view_array(images, Subject{name});
  const auto count = static_cast<std::size_t>(view.shape[0]);
  const std::size_t values = static_cast<std::size_t>(view.items()) / count;
  const kernels::MixedBatch batch{reinterpret_cast<float*>(view.data), count, values,
                                  static_cast<float>(share), static_cast<float>(1.0 - share)};
  // At most a megabyte of each image at a time, which a cache still has when the next one needs it.
  constexpr std::size_t kMost = std::size_t{1} << 18;
  const std::size_t parts = std::max(std::min(threads, values), (values + kMost - 1) / kMost);
  const auto mix = [&](std::size_t begin, std::size_t end) {
    for (std::size_t part = begin; part < end; ++part) {
      kernels::mix(batch, values * part / parts, values * (part + 1) / parts);
    }
  };
  const std::size_t bytes = count * values * sizeof(float) / parts;
  run_rows(parts, bytes, threads, mix);
}

}  // namespace

void register_mix(py::module_& m) {
  m.def("mix_images", &mix_images, py::arg("images"), py::arg("share"), py::arg("name"),
        py::arg("threads"));
}

}  // namespace pinfeed::bindings
