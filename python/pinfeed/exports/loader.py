"""What counts as a loader: anything to iterate that gives batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from pinfeed.functions.jagged import JaggedBatch
from pinfeed.functions.padded import Padded

# A user who hands over one of these has forgotten the loop around it.
_BATCHES = (np.ndarray, torch.Tensor, str, bytes, Mapping, JaggedBatch, Padded)


def require_loader(loader: Any, function: str) -> None:
    """Raises TypeError for what can't be iterated, and for a single batch."""
    if isinstance(loader, _BATCHES) or not hasattr(loader, "__iter__"):
        hint = "; wrap it in a DataLoader" if isinstance(loader, Dataset) else ""
        raise TypeError(
            f"{function}: loader must be an iterable of batches, got {type(loader).__name__}{hint}"
        )
