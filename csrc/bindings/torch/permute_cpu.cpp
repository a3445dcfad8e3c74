// permute for tensors on the CPU.
#include <torch/csrc/stable/library.h>

#include "bindings/torch/parallel.h"
#include "bindings/torch/permute.h"
#include "dispatch/cpu_features.h"
#include "dispatch/dispatch.h"
#include "kernels/strided_copy.h"

namespace pinfeed::torch_ops {
namespace {

void write_on_cpu(const PermuteCall& call) {
  const bool streaming = dispatch::worth_streaming(static_cast<std::size_t>(call.bytes));
  Shape strides = call.strides;
  for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(call.item_size);
  const kernels::StridedCopy copy(call.shape.size(), call.shape.data(), strides.data(),
                                  call.item_size);
  run_rows(copy.rows(), copy.row_bytes(), [&](std::size_t begin, std::size_t end) {
    copy.run(*dispatch::active_isa().permute, call.images.const_data_ptr(),
             call.out.mutable_data_ptr(), begin, end, streaming);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(pinfeed, CPU, m) {
  m.impl("permute", TORCH_BOX((&permute<write_on_cpu>)));
}

}  // namespace pinfeed::torch_ops
