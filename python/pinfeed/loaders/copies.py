"""The leaves of one batch, sorted by how each gets to a device."""

from __future__ import annotations

from typing import Any

import torch

from pinfeed.loaders.leaves import has_own_memory, is_open, moved
from pinfeed.loaders.slots import SlotRing

# Where a tensor of torch's own would begin: no kernel notices a difference.
_ALIGNMENT = 512
# Up to here, starting a copy takes longer than making it.
_SMALL = 64 * 1024


class Cargo:
    """The leaves of one batch on their way to a device.

    Args:
        leaves: Tensors, and objects that move themselves.
        accelerator: The device.

    Attributes:
        size: Bytes that are copied.
        is_foreign: Whether the loader may have used the device itself to make them.
        has_unsent: Whether some become `Unsent`.
    """

    def __init__(self, leaves: list[Any], accelerator: Any) -> None:
        self.size = 0
        self.is_foreign = False
        self.has_unsent = False
        self._accelerator = accelerator
        self._leaves = leaves
        self._movers: list[int] = []  # positions of those whose .to is called
        self._small: list[_Parcel] = []  # these share one piece of memory on the device
        self._large: list[_Parcel] = []
        self._pinned: list[_Parcel] = []  # these are copied from where they are
        for position, leaf in enumerate(leaves):
            self._sort(position, leaf)

    def send(self, slots: SlotRing) -> list[Any]:
        """Starts all copies, on the current stream; returns the leaves in the order they came."""
        arrived = list(self._leaves)
        # What fails for want of memory does so before a slot is touched.
        for position in self._movers:
            arrived[position] = moved(arrived[position], self._accelerator.device)
        shared, staged_size = self._make_room()
        parcels = (*self._small, *self._large, *self._pinned)
        if parcels:
            slot = slots.claim(staged_size)
            slot.held = [parcel.leaf for parcel in self._pinned]
            try:
                self._copy(slot.memory, shared)
            finally:
                slot.copied = self._accelerator.record(self._accelerator.copies)
        for parcel in parcels:
            arrived[parcel.position] = parcel.target
        return arrived

    def _sort(self, position: int, leaf: Any) -> None:
        if _is_only_bytes(leaf):
            self._add_parcel(_Parcel(position, leaf))
            return
        self.is_foreign = True
        if isinstance(leaf, torch.Tensor):
            is_traceable = has_own_memory(leaf)
        else:
            is_traceable = hasattr(leaf, "record_stream") or is_open(leaf)
        if is_traceable:
            self._movers.append(position)
        else:
            self._leaves[position] = Unsent(leaf)
            self.has_unsent = True

    def _add_parcel(self, parcel: _Parcel) -> None:
        leaf = parcel.leaf
        self.size += leaf.nbytes
        if leaf.nbytes <= _SMALL:
            self._small.append(parcel)
        elif leaf.stride() == parcel.strides and self._accelerator.is_pinned(leaf):
            self._pinned.append(parcel)
        else:
            self._large.append(parcel)

    def _make_room(self) -> tuple[torch.Tensor, int]:
        """Gives each parcel its places.

        Returns:
            The memory that small ones share on the device, and the bytes of a slot that all take.
        """
        end = 0
        for parcel in self._small:
            end = parcel.place(end)
        shared = self._accelerator.empty((end,), (1,), torch.uint8)
        for parcel in self._small:
            parcel.target = parcel.within(shared)
        for parcel in self._large:
            end = parcel.place(end)
        for parcel in (*self._large, *self._pinned):
            parcel.target = self._accelerator.empty(
                parcel.leaf.shape, parcel.strides, parcel.leaf.dtype
            )
        return shared, end

    def _copy(self, staging: torch.Tensor, shared: torch.Tensor) -> None:
        for parcel in self._small:
            parcel.within(staging).copy_(parcel.leaf)
        if self._small:
            self._accelerator.copy(shared, staging[: len(shared)])
        for parcel in self._pinned:
            self._accelerator.copy(parcel.target, parcel.leaf)
        for parcel in self._large:
            staged = parcel.within(staging)
            staged.copy_(parcel.leaf)
            self._accelerator.copy(parcel.target, staged)


class _Parcel:
    """A tensor that is copied as bytes.

    Args:
        position: Which of the leaves it is.
        leaf: On the host.

    Attributes:
        strides: Those that ``leaf.to(device)`` would have: without gaps.
        target: The tensor on the device, once there is one.
    """

    __slots__ = ("_start", "leaf", "position", "strides", "target")

    def __init__(self, position: int, leaf: torch.Tensor) -> None:
        self.position = position
        self.leaf = leaf
        is_dense = leaf.is_contiguous()
        self.strides = (leaf if is_dense else torch.empty_like(leaf, device="meta")).stride()
        self.target = leaf
        self._start = 0

    def place(self, start: int) -> int:
        """Puts it there in the slot's memory; returns where the next one may start."""
        self._start = start
        return -(-(start + self.leaf.nbytes) // _ALIGNMENT) * _ALIGNMENT

    def within(self, memory: torch.Tensor) -> torch.Tensor:
        """Its place in such memory as a tensor like it."""
        part = memory[self._start : self._start + self.leaf.nbytes]
        return part.view(self.leaf.dtype).as_strided(self.leaf.shape, self.strides)


class Unsent:
    """A leaf that the consumer takes to the device.

    Nobody else could say until when it uses what memory there.

    Args:
        leaf: On the host.
    """

    __slots__ = ("_leaf",)

    def __init__(self, leaf: Any) -> None:
        self._leaf = leaf

    def to(self, device: torch.device) -> Any:
        """The leaf on the device."""
        return moved(self._leaf, device)


def _is_only_bytes(leaf: Any) -> bool:
    """Whether it is a tensor of the host, and copying its bytes is all there is to moving it."""
    return (
        type(leaf) is torch.Tensor
        and leaf.is_cpu
        and has_own_memory(leaf)
        and not leaf.requires_grad
        and not leaf.is_quantized
    )
