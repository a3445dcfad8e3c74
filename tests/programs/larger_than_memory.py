"""Selections of a RaggedArray that are larger than any memory."""

import numpy as np
import torch

from pinfeed.sources.ragged import RaggedArray


def try_selection(values, times):
    n = len(values)
    try:
        RaggedArray(values, np.array([0, n]))[[0] * times]
    except (ValueError, MemoryError) as error:
        assert "too large for any memory" in str(error) or "no memory for a result" in str(error)
        print("refused")


for times in (2, 4, 7, 8, 9, 16):
    try_selection(np.broadcast_to(np.int8(1), 2**61), times)
    try_selection(torch.ones(1, dtype=torch.int8).expand(2**61), times)
    try_selection(np.broadcast_to(1.0, (2**48, 2**11)), times)
try_selection(torch.empty((2**62, 0), dtype=torch.int8), 4)
