"""Host memory that batches leave for a device from."""

from __future__ import annotations

from typing import Any

import torch

from pinfeed.loaders.host_memory import HostMemory


class Slot:
    """Memory for one batch, reused as soon as its copies are done and not before.

    Attributes:
        memory: uint8 of shape (size,).
        copied: The event behind the copies from it; None if there are none.
        held: Tensors elsewhere that are copied with it, from where they are.
    """

    __slots__ = ("copied", "held", "memory")

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8, device="cpu")
        self.copied: Any = None
        self.held: list[torch.Tensor] = []

    def wait(self) -> None:
        """Waits until the copies are done."""
        if self.copied is not None:
            self.copied.synchronize()
        self.copied = None
        self.held = []


class SlotRing:
    """Slots in turn: one is filled while the other is copied.

    Args:
        accelerator: The device.
        memory: Where they get theirs.
    """

    _COUNT = 2

    def __init__(self, accelerator: Any, memory: HostMemory) -> None:
        self._accelerator = accelerator
        self._memory = memory
        self._slots: list[Slot] = []

    def claim(self, size: int) -> Slot:
        """The slot whose turn it is, once its last batch has left, with room for ``size`` bytes."""
        slot = Slot() if len(self._slots) < self._COUNT else self._slots.pop(0)
        self._slots.append(slot)
        slot.wait()
        if len(slot.memory) < size:
            slot.memory = slot.memory[:0].clone()  # the old one goes first
            slot.memory = self._memory.allocate(self._accelerator, size)
        return slot

    def close(self) -> None:
        """Gives the memory back, once nothing is copied from it any more."""
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.wait()
