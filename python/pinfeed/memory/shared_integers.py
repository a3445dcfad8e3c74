"""Integers shared by the main process and its workers, such as the epoch."""

from __future__ import annotations

import multiprocessing.context
from collections.abc import Sequence
from typing import Any

import torch

from pinfeed import _core
from pinfeed.memory.outputs import new_shared_storage


class SharedIntegers:
    """Integers that an object shares with its copies in workers, for any start method.

    Other copies, by ``copy`` or ``pickle``, get their own memory with the same values. Messages name
    the ``owner``.

    Attributes:
        values: int64 of shape (count,).
    """

    def __init__(self, values: Sequence[int], owner: str) -> None:
        self._owner = owner
        self.values = self._shared(torch.tensor(values, dtype=torch.int64, device="cpu"))

    def compare_exchange(self, index: int, expected: int, desired: int) -> bool:
        """Atomically replaces a value if it equals ``expected``; returns whether it did."""
        return _core.compare_exchange(self.values.numpy(), index, expected, desired)

    def __getstate__(self) -> dict[str, Any]:
        is_for_worker = multiprocessing.context.get_spawning_popen() is not None
        values = self.values if is_for_worker else self.values.clone()
        return {"owner": self._owner, "values": values}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._owner = state["owner"]
        values = state["values"]
        self.values = values if values.is_shared() else self._shared(values)

    def _shared(self, values: torch.Tensor) -> torch.Tensor:
        storage = new_shared_storage(values.nbytes, self._owner)
        integers = torch.empty(0, dtype=values.dtype, device="cpu")
        integers.set_(storage, 0, values.shape)  # type: ignore[call-overload]
        return integers.copy_(values)
