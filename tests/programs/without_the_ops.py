"""Errors without torch.ops.pinfeed."""

import json

import torch

import pinfeed
from pinfeed.functional.torch_ops import require, status

said = []
for ask in (lambda: torch.ops.pinfeed.permute, lambda: require("pad", torch.device("cuda"))):
    try:
        ask()
    except (AttributeError, RuntimeError) as error:
        said.append(str(error))
images = torch.zeros(1, 2, 2, 3, dtype=torch.uint8)
with pinfeed.testing.use_isa("scalar"):
    said.append(list(pinfeed.functional.normalize(images).shape))
said += [status(), pinfeed.__file__]
print(json.dumps(said))
