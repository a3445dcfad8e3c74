// The ops of torch.ops.pinfeed. docs/torch-ops.md documents them.
//
// pad_value defaults to None rather than 0: torch omits arguments that are equal to their default
// in Python, and -0.0 is equal to 0.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(pinfeed, m) {
  m.def(
      "normalize_images(Tensor images, float[]? mean=None, float[]? std=None, *, "
      "float scale=0.00392156862745098, str input='NHWC', str output='NCHW', "
      "ScalarType? dtype=None, bool channels_last=False) -> Tensor");
  m.def("permute(Tensor images, str input='NHWC', str output='NCHW') -> Tensor");
  m.def(
      "pad_jagged(Tensor values, Tensor offsets, SymInt length, *, SymInt? max_length=None, "
      "float? pad_value=None, str side='right') -> Tensor");
  m.def(
      "unpad_to_jagged(Tensor padded, Tensor offsets, SymInt total, *, SymInt? max_length=None, "
      "str side='right') -> Tensor");
}
