"""The demo's peak memory follows an allocation."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))
from examples.demo.training import peak_resident_bytes

before = peak_resident_bytes()
block = np.ones(before + (64 << 20), dtype=np.uint8)
assert peak_resident_bytes() >= before + (64 << 20)
