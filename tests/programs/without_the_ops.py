"""Errors without torch.ops.pinfeed."""

import json

import torch

import pinfeed
from pinfeed.functional.torch_ops import require, status

messages = []
for ask in (lambda: torch.ops.pinfeed.permute, lambda: require("pad", torch.device("cuda"))):
    try:
        ask()
    except (AttributeError, RuntimeError) as error:
        messages.append(str(error))
images = torch.zeros(1, 2, 2, 3, dtype=torch.uint8)
with pinfeed.testing.use_isa("scalar"):
    messages.append(list(pinfeed.functional.normalize(images).shape))
messages += [status(), pinfeed.__file__]
print(json.dumps(messages))
