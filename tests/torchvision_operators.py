"""Makes torchvision importable if it was built for another torch.

Its operators don't load then. The tests and Lightning need only their schemas.
"""

import sys

import torch

try:
    import torchvision  # noqa: F401
except ModuleNotFoundError:  # the tests of a wheel don't need it
    pass
except RuntimeError:
    for name in [name for name in sys.modules if name.startswith("torchvision.")]:
        del sys.modules[name]
    sys.modules.pop("torchvision", None)
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
