"""Copies between the host and a device: page-locked staging buffers, and the streams they run on."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

import torch

from pinfeed.memory.outputs import pinned_empty, torch_pinned

# The alignment of torch's own tensors, which kernels may rely on.
ALIGNMENT = 512

# Devices with a single stream, where copies can't overlap with other work.
_WITHOUT_STREAMS = ("mps",)


def has_streams(device: torch.device) -> bool:
    """Whether copies to and from a device can overlap with its other work."""
    accelerator = torch.accelerator.current_accelerator()
    return (
        accelerator is not None
        and device.type == accelerator.type
        and device.type not in _WITHOUT_STREAMS
    )


class Accelerator:
    """Streams, events and memory of one device.

    Uses ``torch.accelerator``, ``torch.Stream`` and ``torch.Event``, which work for every kind of
    device. Creating an Accelerator initializes the device, so it must not happen before a loop begins.

    Attributes:
        device: The device, with its index.
        copies: The stream for copies.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # A separate object for the same stream, because torch stores the previous stream of a `with`
        # block on the object, so two threads can't share one.
        shared = _copy_stream(device)
        self.copies = torch.Stream(
            stream_id=shared.stream_id,
            device_index=shared.device_index,
            device_type=shared.device_type,
        )

    def current_stream(self) -> torch.Stream:
        """Returns this thread's current stream of the device."""
        return torch.accelerator.current_stream(self.device)

    def as_here(self) -> AbstractContextManager[Any]:
        """Returns a context manager that sets this thread's current device and stream in another thread.

        A loader that computes on the device then does so on the consumer's stream, in order with the
        consumer's work.
        """
        return torch.accelerator.current_stream()

    def record(self, stream: torch.Stream) -> torch.Event:
        """Records an event after all work on the stream so far; waiting for it doesn't spin."""
        event = torch.Event(self.device, blocking=True)
        event.record(stream)
        return event

    def pinned(self, size: int) -> torch.Tensor:
        """Allocates pinned host memory of torch's caching allocator, uint8 of shape (size,)."""
        # Pinning initializes the current device, which must be this one.
        with torch.accelerator.device_index(self.device.index):
            return torch_pinned((size,), torch.uint8)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a host tensor can be copied from asynchronously."""
        return tensor.is_pinned()

    def empty(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """Allocates device memory for use on the current stream."""
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Starts an asynchronous copy between host and device on the current stream."""
        target.copy_(source, non_blocking=True)

    def keep_for(self, tensor: torch.Tensor, stream: torch.Stream) -> None:
        """Delays reuse of a tensor's memory, once freed, until ``stream`` has finished its work."""
        tensor.record_stream(stream)


class StagingBuffer:
    """Host memory for one batch on its way to the device.

    Attributes:
        memory: uint8 of shape (size,), pinned if possible.
        copied: Event after the copies from or to the memory; None without copies.
        held: Other tensors that these copies read.
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
    """Two alternating buffers: one is filled while the other is copied."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._buffers: list[StagingBuffer] = []

    def claim(self, size: int) -> StagingBuffer:
        """Returns the next buffer, of at least ``size`` bytes, once its copies are done."""
        buffer = StagingBuffer() if len(self._buffers) < 2 else self._buffers.pop(0)
        self._buffers.append(buffer)
        buffer.wait()
        if len(buffer.memory) < size:
            buffer.memory = buffer.memory[:0].clone()  # free the old memory first
            # torch rounds pinned allocations up to powers of two anyway. With the whole of one,
            # batches of different sizes soon fit.
            capacity = 1 << (size - 1).bit_length()
            buffer.memory = pinned_empty(
                (capacity,), torch.uint8, lambda: self._accelerator.pinned(capacity)
            )
        return buffer

    def close(self) -> None:
        """Frees the memory, after all copies are done."""
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            buffer.wait()


@functools.cache
def _copy_stream(device: torch.device) -> torch.Stream:
    # One stream for all loaders, because torch's allocator caches freed memory per stream, and a new
    # stream per epoch could not reuse the memory of the epoch before.
    return torch.Stream(device)
