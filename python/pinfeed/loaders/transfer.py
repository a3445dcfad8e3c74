"""Transfer of batches to the device."""

from __future__ import annotations

import contextlib
from collections import UserDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from typing_extensions import override

from pinfeed import structure
from pinfeed.arguments import rounded_up
from pinfeed.collation.plan import Entry
from pinfeed.functional.torch_ops import has_kernels
from pinfeed.memory.staging import ALIGNMENT, StagingBuffers

# Sequences that are not containers of entries.
_WHOLE = (torch.Tensor, torch.Size, range, bytearray, memoryview)

# Up to this size, starting a copy takes longer than the copy.
_SMALL_BYTES = 64 * 1024


class InFlight(NamedTuple):
    """A batch on its way to the device."""

    batch: Any  # the batch with its entries on the device, except late ones
    size: int = 0  # number of bytes copied
    events: tuple[Any, ...] = ()  # events after all work on the batch
    memory: tuple[torch.Tensor, ...] = ()  # device tensors, one per allocation
    has_late_entries: bool = False  # whether the consumer's thread must move entries


class Transfer:
    """Applies fields to batches that stay on the host; base class of the other transfers."""

    def __init__(self, plan: Entry) -> None:
        self._plan = plan

    def send(self, batch: Any) -> InFlight:
        """Starts the transfer of a batch; called in the background thread."""
        return InFlight(self._plan.apply(batch, batch))

    def receive(self, sent: InFlight) -> Any:
        """Returns the batch, safe to use on the current stream; called in the consumer's thread."""
        return sent.batch

    def as_here(self) -> AbstractContextManager[Any]:
        """Returns a context manager that sets this thread's device and stream in another thread."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Frees memory, which the next batch allocates again."""


class OneStreamTransfer(Transfer):
    """Moves batches by ``.to``, after applying fields, to a device with a single stream (Apple's).

    Nothing can overlap there, and the device uses host memory.
    """

    def __init__(self, plan: Entry, device: torch.device) -> None:
        super().__init__(plan)
        self._device = device

    @override
    def send(self, batch: Any) -> InFlight:
        batch = self._plan.apply(batch, batch)
        size = sum(
            entry.nbytes
            for entry in _movable_in(batch)
            if isinstance(entry, torch.Tensor)
            and has_own_memory(entry)
            and entry.device != self._device
        )
        return InFlight(map_movable(lambda entry: moved(entry, self._device), batch), size)


class StreamTransfer(Transfer):
    """Copies batches to a device on a separate stream.

    Tensors are copied through pinned staging buffers: large ones into their own device memory, the small
    ones of a batch together. Pinned tensors are copied directly. Tensors with more than their bytes
    (subclasses, gradients) are moved by ``.to``. So are objects with a ``.to`` and tensors composed of
    others, but late, in the consumer's thread, because their device memory is unknown. Fields are applied
    on the device, or on the host if the device has no pinfeed kernels.
    """

    def __init__(self, plan: Entry, accelerator: Any) -> None:
        super().__init__(plan)
        self._accelerator = accelerator
        self._are_fields_there = plan.fields is not None and has_kernels(accelerator.device)
        self._buffers = StagingBuffers(accelerator)

    @override
    def send(self, batch: Any) -> InFlight:
        accelerator = self._accelerator
        if not self._are_fields_there:
            batch = self._plan.apply(batch, batch)
        entries = _movable_in(batch)
        copies = {i: _TensorCopy(entry) for i, entry in enumerate(entries) if _is_only_bytes(entry)}
        others = [i for i in range(len(entries)) if i not in copies]
        events = []
        if others:  # the loader may have created them on the device, on this thread's stream
            events.append(accelerator.record(accelerator.current_stream()))
            if self._are_fields_there:
                accelerator.copies.wait_event(events[0])
        with accelerator.copies:
            # First, so that an out-of-memory error comes before a staging buffer is used.
            for i in others:
                entry = entries[i]
                is_strided = isinstance(entry, torch.Tensor) and has_own_memory(entry)
                entries[i] = entry.to(accelerator.device) if is_strided else _LateEntry(entry)
            allocated = self._copy(list(copies.values()))
            for i, copy in copies.items():
                entries[i] = copy.target
            next_entry = iter(entries)
            moved_batch = map_movable(lambda _: next(next_entry), batch)
            if self._are_fields_there:
                moved_batch = self._plan.apply(moved_batch, batch)
            events.append(accelerator.record(accelerator.copies))
        size = sum(copy.size for copy in copies.values())
        has_late_entries = any(isinstance(entries[i], _LateEntry) for i in others)
        if self._are_fields_there:  # their inputs can be freed
            memory = _device_memory(moved_batch, accelerator.device)
        else:
            memory = (*allocated, *_device_memory([entries[i] for i in others], accelerator.device))
        return InFlight(moved_batch, size, tuple(events), memory, has_late_entries)

    @override
    def receive(self, sent: InFlight) -> Any:
        stream = self._accelerator.current_stream()
        for event in sent.events:
            stream.wait_event(event)
        for tensor in sent.memory:
            self._accelerator.keep_for(tensor, stream)
        if not sent.has_late_entries:
            return sent.batch
        device = self._accelerator.device
        return map_movable(
            lambda entry: entry.to(device) if isinstance(entry, _LateEntry) else entry, sent.batch
        )

    @override
    def as_here(self) -> AbstractContextManager[Any]:
        return self._accelerator.as_here()

    @override
    def close(self) -> None:
        self._buffers.close()

    def _copy(self, copies: list[_TensorCopy]) -> list[torch.Tensor]:
        """Allocates the targets of all copies, which it returns, and starts the copies on this stream."""
        if not copies:
            return []
        accelerator = self._accelerator
        small = [copy for copy in copies if copy.size <= _SMALL_BYTES]
        large = [copy for copy in copies if copy.size > _SMALL_BYTES]
        pinned = [copy for copy in large if copy.is_dense and accelerator.is_pinned(copy.source)]
        staged = [copy for copy in large if copy not in pinned]
        end = 0
        for copy in small:
            end = copy.place(end)
        shared = accelerator.empty((end,), (1,), torch.uint8)
        typed = {dtype: shared.view(dtype) for dtype in {copy.source.dtype for copy in small}}
        for copy in small:
            copy.target = copy.within(typed)
        for copy in large:
            copy.target = accelerator.empty(copy.source.shape, copy.strides, copy.source.dtype)
        for copy in staged:
            end = copy.place(end)
        buffer = self._buffers.claim(end)
        buffer.held = [copy.source for copy in pinned]
        dtypes = {copy.source.dtype for copy in (*small, *staged)}
        typed = {dtype: buffer.memory.view(dtype) for dtype in dtypes}
        try:
            for copy in small:
                copy.within(typed).copy_(copy.source)
            if small:
                accelerator.copy(shared, buffer.memory[: len(shared)])
            for copy in pinned:
                accelerator.copy(copy.target, copy.source)
            for copy in staged:
                accelerator.copy(copy.target, copy.within(typed).copy_(copy.source))
        finally:
            buffer.copied = accelerator.record(accelerator.copies)
        return [shared, *(copy.target for copy in large)]


class _TensorCopy:
    """The copy of one tensor, as bytes.

    Attributes:
        source: The tensor on the host.
        size: Its size in bytes.
        strides: The strides of ``source.to(device)``, without gaps.
        is_dense: Whether the source has the same strides.
        target: The tensor on the device, once allocated.
    """

    __slots__ = ("_start", "is_dense", "size", "source", "strides", "target")

    def __init__(self, source: torch.Tensor) -> None:
        self.source, self.size = source, source.nbytes
        self.strides = strides = source.stride()
        if not source.is_contiguous():
            self.strides = torch.empty_like(source, device="meta").stride()
        self.is_dense = strides == self.strides
        self.target = source
        self._start = 0

    def place(self, start: int) -> int:
        """Sets its offset in the staging buffer; returns the next free offset."""
        self._start = start
        return int(rounded_up(start + self.size, ALIGNMENT))

    def within(self, typed: dict[torch.dtype, torch.Tensor]) -> torch.Tensor:
        """Returns its part of a buffer, given by dtype, as a tensor like the source."""
        buffer = typed[self.source.dtype]
        start = self._start // buffer.itemsize
        return buffer.as_strided(self.source.shape, self.strides, start)


class _LateEntry:
    """An entry that the consumer's thread moves, on the consumer's stream."""

    __slots__ = ("_entry",)

    def __init__(self, entry: Any) -> None:
        self._entry = entry

    def to(self, device: torch.device) -> Any:
        """Moves the entry to the device."""
        return moved(self._entry, device)


def _is_only_bytes(entry: Any) -> bool:
    """Whether an entry is a host tensor that can be moved by copying its bytes."""
    return (
        type(entry) is torch.Tensor
        and entry.is_cpu
        and has_own_memory(entry)
        and not entry.requires_grad
        and not entry.is_quantized
    )


def _device_memory(batch: Any, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Returns one tensor per allocation of the batch on the device."""
    pieces = {
        tensor.untyped_storage().data_ptr(): tensor
        for tensor in tensors_in(batch)
        if tensor.device == device
    }
    return tuple(pieces.values())


def map_movable(function: Callable[[Any], Any], batch: Any) -> Any:
    """Returns the batch with ``function(entry)`` for each tensor and each object that moves itself.

    Other entries, and containers without changes, stay the same objects.
    """

    def changed(entry: Any) -> Any:
        return function(entry) if isinstance(entry, torch.Tensor) or _moves_itself(entry) else entry

    is_entry = lambda node: isinstance(node, _WHOLE) or _moves_itself(node)
    return structure.map_entries(changed, batch, is_entry)


def _movable_in(batch: Any) -> list[Any]:
    """Returns the entries that `map_movable` passes to its function."""
    entries: list[Any] = []
    map_movable(lambda entry: entries.append(entry) or entry, batch)  # type: ignore[func-returns-value]
    return entries


def _moves_itself(node: Any) -> bool:
    """Whether to move an object by its own ``.to``.

    A UserDict, such as a tokenizer's BatchEncoding, is treated as a dict instead: its ``.to`` only
    moves the values.
    """
    return callable(getattr(node, "to", None)) and not isinstance(
        node, (torch.Tensor, UserDict, type)
    )


def moved(entry: Any, device: torch.device) -> Any:
    """Moves an entry to the device by its own ``.to``."""
    result = entry.to(device)
    return entry if result is None else result  # it moved in place


def tensors_in(node: Any) -> list[torch.Tensor]:
    """Returns all tensors in nested containers."""
    found: list[Any] = []
    is_entry = lambda node: isinstance(node, _WHOLE)
    structure.map_entries(lambda entry: found.append(entry) or entry, node, is_entry)  # type: ignore[func-returns-value]
    return [entry for entry in found if isinstance(entry, torch.Tensor)]


def has_own_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a plain strided one, not composed of other tensors."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and (type(tensor) is torch.Tensor or not hasattr(tensor, "__tensor_flatten__"))
    )
