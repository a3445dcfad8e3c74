"""Patches equal those of transformers' processors that resize with torch.

torch resizes bicubic bytes like pinfeed, so only the normalization rounds differently. It resizes bilinear
bytes in float32 on CPUs with AVX-512.
"""

import sys
from pathlib import Path

import torchvision_operators  # noqa: F401

# isort: split
sys.path.append(str(Path(__file__).parents[1] / "integrations"))
import test_patches_processors as tests

for label, settings in tests.PROCESSORS.items():
    module, name = label.split()
    tests.compare(module, name, settings, "", 1.01 if name == "Siglip2" else 1e-3)
    print(label)
