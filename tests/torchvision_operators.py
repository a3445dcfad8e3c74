"""Makes torchvision importable where it is built for another torch.

Its operators can't be loaded then. What tests compare with, and what Lightning imports, needs none of
them, but their schemas.
"""

import sys

import torch

try:
    import torchvision  # noqa: F401
except ModuleNotFoundError:  # the tests of a built wheel need none
    pass
except RuntimeError:
    for name in [name for name in sys.modules if name.startswith("torchvision.")]:
        del sys.modules[name]
    sys.modules.pop("torchvision", None)
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
