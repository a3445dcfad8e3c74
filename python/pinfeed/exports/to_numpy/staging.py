"""Batches on their way from an accelerator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

Parts = tuple[Any, ...]


def is_remote(part: Any) -> bool:
    """Whether a part of a leaf has to be fetched from a device."""
    return isinstance(part, torch.Tensor) and part.device.type != "cpu"


class CopyStream:
    """Copies from one device to the host, beside the other work on it.

    Args:
        device: Of any type that has streams.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)

    def buffer(self, size: int) -> torch.Tensor:
        """Memory on the host that such a copy can go to: uint8 of shape (size,)."""
        with self._stream:  # pinning is up to the current device
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Callable[[], object]:
        """Starts a copy, to follow what the current stream of the device has to do so far.

        Returns:
            What waits until it is done, and has to be called.
        """
        # Copied on the device first, in a fraction of the time: the next work on the current stream
        # may write into the source again, as a replayed CUDA graph does.
        settled = source.clone(memory_format=torch.contiguous_format)
        self._stream.wait_stream(torch.accelerator.current_stream(self._device))
        with self._stream:
            target.copy_(settled, non_blocking=True)
        done = torch.Event(self._device, blocking=True)
        done.record(self._stream)

        def wait(source: torch.Tensor = settled) -> None:  # which keeps its memory until then
            done.synchronize()

        return wait


def copy_stream(device: torch.device) -> CopyStream | None:
    """The stream for copies from a device; None where there are only plain copies."""
    accelerator = torch.accelerator.current_accelerator()
    # MPS has a single stream, and memory that host and device share.
    if accelerator is None or device.type != accelerator.type or device.type == "mps":
        return None
    return CopyStream(device)


class Transfer:
    """Leaves of a batch that are being fetched.

    Args:
        leaves: The parts of each, in buffers that are being written.
        waits: What waits until they are.
    """

    def __init__(self, leaves: list[Parts], waits: list[Callable[[], object]]) -> None:
        self._leaves = leaves
        self._waits = waits

    def wait(self) -> list[Parts]:
        """The parts of each leaf, in memory."""
        for wait in self._waits:
            wait()
        return self._leaves


class Staging:
    """Two sets of pinned buffers: one is copied into while the other one is read.

    Args:
        stream: Gives the stream for copies from a device.
    """

    def __init__(self, stream: Callable[[torch.device], CopyStream | None] = copy_stream) -> None:
        self._new_stream = stream
        self._streams: dict[torch.device, CopyStream | None] = {}
        self._sets: list[dict[tuple[int, int], torch.Tensor]] = [{}, {}]

    def fetch(self, leaves: Sequence[Parts]) -> Transfer:
        """Starts to fetch what is on devices; the tensors may be overwritten as soon as it returns.

        Args:
            leaves: The parts of each leaf.

        Returns:
            The leaves. The transfer before the last must not be needed any more.
        """
        self._sets.reverse()
        waits: list[Callable[[], object]] = []
        fetched = [
            tuple(
                self._fetch(part, (leaf, i), waits) if is_remote(part) else copy.deepcopy(part)
                for i, part in enumerate(parts)
            )
            for leaf, parts in enumerate(leaves)
        ]
        return Transfer(fetched, waits)

    def _fetch(
        self, source: torch.Tensor, key: tuple[int, int], waits: list[Callable[[], object]]
    ) -> torch.Tensor:
        if source.device not in self._streams:
            self._streams[source.device] = self._new_stream(source.device)
        stream = self._streams[source.device]
        if stream is None:
            return source.cpu()
        size = source.numel() * source.itemsize
        buffer = self._sets[0].get(key)
        if buffer is None or len(buffer) < size:
            buffer = self._sets[0][key] = stream.buffer(size)
        host = buffer[:size].view(source.dtype).view(source.shape)
        waits.append(stream.copy(host, source))
        return host
