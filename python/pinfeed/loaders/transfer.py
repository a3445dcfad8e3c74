"""How batches get from the loader's hands into the consumer's."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch

from pinfeed.loaders.copies import Cargo, Unsent
from pinfeed.loaders.device_fields import BatchSpec
from pinfeed.loaders.host_memory import HostMemory
from pinfeed.loaders.leaves import has_own_memory, map_leaves, moved, tensors_in
from pinfeed.loaders.slots import SlotRing

# From the consumer's line to `Transfer.receive`: __next__, Feed.take, receive.
_CONSUMER = 4


class Sent(NamedTuple):
    """A batch on its way.

    Attributes:
        batch: With its leaves where they belong, but for those `Unsent`.
        size: Bytes that are copied.
        events: Behind everything that is done to it.
        memory: What uses memory of the device, one for each piece of it.
        has_unsent: Whether there are leaves `Unsent`.
    """

    batch: Any
    size: int = 0
    events: tuple[Any, ...] = ()
    memory: tuple[Any, ...] = ()
    has_unsent: bool = False


class Transfer(ABC):
    """The way of the batches of one iteration."""

    @abstractmethod
    def send(self, batch: Any) -> Sent:
        """Starts a batch on its way; in the background thread."""

    @abstractmethod
    def receive(self, sent: Sent) -> Any:
        """The batch, safe to use on the current stream; in the consumer's thread."""

    @abstractmethod
    def as_here(self) -> AbstractContextManager[Any]:
        """What another thread enters to have the device and the stream of this one."""

    @abstractmethod
    def close(self) -> None:
        """Gives memory back; a batch that is sent later takes it again."""


class HostTransfer(Transfer):
    """Batches stay where they are; only the fields are applied.

    Args:
        spec: The fields.
    """

    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec

    def send(self, batch: Any) -> Sent:
        """See `Transfer.send`."""
        return Sent(self._spec.apply(batch, batch))

    def receive(self, sent: Sent) -> Any:
        """See `Transfer.receive`."""
        return sent.batch

    def as_here(self) -> AbstractContextManager[Any]:
        """See `Transfer.as_here`."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """See `Transfer.close`."""


class OrderedTransfer(Transfer):
    """Batches are moved to a device that does everything in one order: Apple's, with one stream.

    Nothing overlaps there, and host memory is the device's, so ``.to`` is all it takes.

    Args:
        spec: The fields.
        device: Where batches go.
    """

    def __init__(self, spec: BatchSpec, device: torch.device) -> None:
        self._spec = spec
        self._device = device

    def send(self, batch: Any) -> Sent:
        """See `Transfer.send`."""
        size = 0

        def move(leaf: Any) -> Any:
            nonlocal size
            there = moved(leaf, self._device)
            if there is not leaf and isinstance(there, torch.Tensor) and has_own_memory(there):
                size += there.nbytes
            return there

        return Sent(self._spec.apply(map_leaves(move, batch), batch), size)

    def receive(self, sent: Sent) -> Any:
        """See `Transfer.receive`."""
        return sent.batch

    def as_here(self) -> AbstractContextManager[Any]:
        """See `Transfer.as_here`."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """See `Transfer.close`."""


class DeviceTransfer(Transfer):
    """Batches are copied to a device, on a stream of their own.

    Tensors go through pinned slots: large ones each into its own memory on the device, the small
    ones of a batch together. Those that are pinned already are copied from where they are. Whatever
    is more than its bytes (subclasses, gradients, objects with a ``.to``) moves itself; if nobody
    can tell what memory it uses on the device then, it does so in the consumer's thread.

    Args:
        spec: The fields.
        accelerator: The device.
        memory: Where slots get theirs.
    """

    def __init__(self, spec: BatchSpec, accelerator: Any, memory: HostMemory) -> None:
        self._spec = spec
        self._accelerator = accelerator
        self._memory = memory
        self._slots = SlotRing(accelerator, memory)

    def send(self, batch: Any) -> Sent:
        """See `Transfer.send`."""
        accelerator = self._accelerator
        leaves: list[Any] = []
        map_leaves(lambda leaf: leaves.append(leaf) or leaf, batch)  # type: ignore[func-returns-value]
        cargo = Cargo(leaves, accelerator)
        events = []
        if cargo.is_foreign:  # and if so, on this thread's stream
            events.append(accelerator.record(accelerator.current_stream()))
            if self._spec:
                accelerator.copies.wait_event(events[0])
        with accelerator.copies:
            arrived = cargo.send(self._slots)
            leaf = iter(arrived)
            there = map_leaves(lambda _: next(leaf), batch)
            there = self._spec.apply(there, batch)
            events.append(accelerator.record(accelerator.copies))
        memory = _memory(there, arrived, accelerator.device)
        return Sent(there, cargo.size, tuple(events), memory, cargo.has_unsent)

    def receive(self, sent: Sent) -> Any:
        """See `Transfer.receive`."""
        stream = self._accelerator.current_stream()
        for event in sent.events:
            stream.wait_event(event)
        for thing in sent.memory:
            self._accelerator.keep_for(thing, stream)
        self._memory.tell_refusal(stacklevel=_CONSUMER)
        if not sent.has_unsent:
            return sent.batch
        device = self._accelerator.device
        return map_leaves(
            lambda leaf: leaf.to(device) if isinstance(leaf, Unsent) else leaf, sent.batch
        )

    def as_here(self) -> AbstractContextManager[Any]:
        """See `Transfer.as_here`."""
        return self._accelerator.as_here()

    def close(self) -> None:
        """See `Transfer.close`."""
        self._slots.close()


def _memory(batch: Any, leaves: list[Any], device: torch.device) -> tuple[Any, ...]:
    """What uses memory of the device: a tensor for each piece, and objects that know theirs."""
    tensors = {
        tensor.untyped_storage().data_ptr(): tensor
        for tensor in tensors_in(batch)
        if tensor.device == device
    }
    objects = (leaf for leaf in leaves if not isinstance(leaf, torch.Tensor))
    return (*tensors.values(), *(leaf for leaf in objects if hasattr(leaf, "record_stream")))
