"""to_tensorflow without TensorFlow."""

import sys

sys.modules["tensorflow"] = None
import torch

import pinfeed

try:
    pinfeed.to_tensorflow([torch.zeros(2)])
except ImportError as error:
    assert "tensorflow is not installed: pip install '.[tensorflow]' in a" in str(error)
else:
    raise AssertionError
