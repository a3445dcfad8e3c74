// Constants of more channels than travel with a launch: on the device, uploaded once.
#pragma once

#include <vector>

#include "bindings/torch/tensors.h"
#include "cuda/image_batch.h"

namespace pinfeed::torch_ops {

// The same constants on the device of `first`, which is current. They stay there until the process
// ends, for a captured graph reads them whenever it is replayed: some hundred bytes for each set
// that a program has. Uploading waits for the device, so it can't be captured itself: what is
// captured must have run before, as torch wants it anyway.
cuda::ChannelConstants device_constants(const std::vector<float>& scale,
                                        const std::vector<float>& bias, const Tensor& first);

}  // namespace pinfeed::torch_ops
