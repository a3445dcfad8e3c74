"""Copies between the host and a device: page-locked staging buffers, and the streams they run on."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

import torch

from pinfeed.memory.outputs import pinned_empty, torch_pinned

# A tensor of torch's own would begin at such a place: no kernel notices a difference.
_ALIGNMENT = 512

# Devices with a single stream, which nothing can be copied beside.
_WITHOUT_STREAMS = ("mps",)


def has_streams(device: torch.device) -> bool:
    """Whether copies to and from a device can run beside its other work."""
    accelerator = torch.accelerator.current_accelerator()
    return (
        accelerator is not None
        and device.type == accelerator.type
        and device.type not in _WITHOUT_STREAMS
    )


class Accelerator:
    """Streams, events and memory of one device.

    Written against ``torch.accelerator``, ``torch.Stream`` and ``torch.Event``, which serve every
    kind of device. Creating one initializes the device, so it must not happen before a loop begins.

    Attributes:
        device: With its index.
        copies: The stream that copies run on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # An object of its own for the same stream: torch keeps on the object what was current
        # before `with`, so two threads can't share one.
        shared = _copy_stream(device)
        self.copies = torch.Stream(
            stream_id=shared.stream_id,
            device_index=shared.device_index,
            device_type=shared.device_type,
        )

    def current_stream(self) -> torch.Stream:
        """The device's stream that this thread works on."""
        return torch.accelerator.current_stream(self.device)

    def as_here(self) -> AbstractContextManager[Any]:
        """What gives another thread the device and the stream that are current in this one.

        A loader that computes on the device itself then does so on the consumer's stream, in
        order with what the consumer does.
        """
        return torch.accelerator.current_stream()

    def record(self, stream: torch.Stream) -> torch.Event:
        """An event behind all that was put on the stream so far; waiting for it doesn't spin."""
        event = torch.Event(self.device, blocking=True)
        event.record(stream)
        return event

    def pinned(self, size: int) -> torch.Tensor:
        """Page-locked host memory of torch's caching allocator, uint8 of shape (size,)."""
        # Pinning initializes the current device, and none but this one is wanted.
        with torch.accelerator.device_index(self.device.index):
            return torch_pinned((size,), torch.uint8)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a host tensor can be copied from while this thread goes on."""
        return tensor.is_pinned()

    def empty(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """Memory of the device, to be used on the current stream."""
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Starts a copy between the host and the device on the current stream, and returns."""
        target.copy_(source, non_blocking=True)

    def keep_for(self, tensor: torch.Tensor, stream: torch.Stream) -> None:
        """Once freed, its memory is not used again before ``stream`` has got to where it is then."""
        tensor.record_stream(stream)


class StagingBuffer:
    """Host memory for one batch, between the batch's own memory and the device's.

    Attributes:
        memory: uint8 of shape (size,), pinned where that can be had.
        copied: The event behind the copies from it or to it; None if there are none.
        held: Tensors elsewhere that these copies read.
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


class StagingBuffers:
    """Two buffers in turn: one is filled while the other is copied."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._buffers: list[StagingBuffer] = []

    def claim(self, size: int) -> StagingBuffer:
        """The buffer whose turn it is, with room for ``size`` bytes, once its copies are done."""
        buffer = StagingBuffer() if len(self._buffers) < 2 else self._buffers.pop(0)
        self._buffers.append(buffer)
        buffer.wait()
        if len(buffer.memory) < size:
            buffer.memory = buffer.memory[:0].clone()  # the old one goes first
            # torch rounds pinned allocations up to powers of two anyway. Having all of one, batches
            # whose sizes differ soon fit.
            room = 1 << (size - 1).bit_length()
            buffer.memory = pinned_empty(
                (room,), torch.uint8, lambda: self._accelerator.pinned(room)
            )
        return buffer

    def close(self) -> None:
        """Gives the memory back, once nothing is copied from it or to it any more."""
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            buffer.wait()


def aligned(size: int) -> int:
    """The next place at or behind ``size`` where a tensor may begin in a buffer."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@functools.cache
def _copy_stream(device: torch.device) -> torch.Stream:
    # One for all loaders: torch's allocator keeps freed memory for the stream that it was used on,
    # so a stream for each epoch would find none of what the epoch before left.
    return torch.Stream(device)
