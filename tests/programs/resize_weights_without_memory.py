"""A resize without enough memory for its weights, then with it."""

import resource

import numpy as np
import torch

import pinfeed

image = np.random.default_rng(0).integers(0, 256, (1, 4_000_000, 1), dtype=np.uint8)
view = pinfeed.augment.Resize((1, 1_900_000))
field = pinfeed.Image(dtype=torch.uint8, augment=view, interpolation="bilinear")
collate = pinfeed.Collate(field)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + 60 * 2**20, hard))
for _ in range(2):
    try:
        collate([image])
    except MemoryError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
planes = torch.from_numpy(image).permute(2, 0, 1)[None]
options = {"mode": "bilinear", "antialias": True}
assert torch.equal(
    collate([image]), torch.nn.functional.interpolate(planes, (1, 1_900_000), **options)
)
