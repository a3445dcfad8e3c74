"""Numbers that a dataset shares with its workers."""

from __future__ import annotations

import multiprocessing.context
from collections.abc import Sequence
from typing import Any

import torch

from pinfeed.memory.shared import new_shared_storage


class SharedCells:
    """Numbers in memory that is shared with the copies in workers, forked or started otherwise.

    Any other copy (by ``copy``, or by ``pickle`` outside of the start of a worker) has its own
    memory, with the same numbers.

    Attributes:
        values: int64 of shape (count,).
    """

    def __init__(self, values: Sequence[int]) -> None:
        self.values = _shared(torch.tensor(values, dtype=torch.int64, device="cpu"))

    def __getstate__(self) -> dict[str, Any]:
        is_for_worker = multiprocessing.context.get_spawning_popen() is not None
        return {"values": self.values if is_for_worker else self.values.clone()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        values = state["values"]
        self.values = values if values.is_shared() else _shared(values)


def _shared(values: torch.Tensor) -> torch.Tensor:
    storage = new_shared_storage(values.nbytes, "StreamDataset")
    cells = torch.empty(0, dtype=values.dtype, device="cpu")
    cells.set_(storage, 0, values.shape)  # type: ignore[call-overload]
    return cells.copy_(values)
