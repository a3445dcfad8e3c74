"""The few calls of torch that feeding a device takes."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

import torch


class Accelerator:
    """Streams, events and memory of one device.

    Written against ``torch.accelerator``, ``torch.Stream`` and ``torch.Event``, which serve every
    kind of device. Creating one initializes the device, so it must not happen before a loop begins.

    Args:
        device: With its index.

    Attributes:
        device: The same.
        copies: The stream that copies to the device run on.
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
        """Page-locked host memory of torch's caching allocator, uint8 of shape (size,).

        Raises:
            RuntimeError: There is none left, or the device has no such thing.
        """
        # The current device counts: pinning initializes it, and none but this one is wanted.
        with torch.accelerator.device_index(self.device.index):
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a host tensor can be copied from while this thread goes on."""
        return tensor.is_pinned()

    def empty(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """Memory of the device, to be used on the current stream.

        Raises:
            torch.OutOfMemoryError: There is not enough.
        """
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Starts a copy from the host on the current stream, and returns."""
        target.copy_(source, non_blocking=True)

    def keep_for(self, thing: Any, stream: torch.Stream) -> None:
        """Once freed, its memory is not used again before ``stream`` has got to where it is then.

        Args:
            thing: A tensor, or an object that has the same method.
            stream: That it is used on.
        """
        thing.record_stream(stream)


@functools.cache
def _copy_stream(device: torch.device) -> torch.Stream:
    # One for all loaders: torch's allocator keeps freed memory for the stream that it was used on,
    # so a stream for each epoch would find none of what the epoch before left.
    return torch.Stream(device)
