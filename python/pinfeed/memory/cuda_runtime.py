"""The few calls of CUDA that pinned slots take."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any

import torch

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all devices of the process
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
# Torch hands out streams of a pool in turn, one for each priority. Others than these two are rare.
_PRIORITIES = (0, -1)
_STREAMS_OF_A_PRIORITY = 32


class CudaRuntime:
    """Locking pages, and telling when devices have read what they were asked to read.

    Nothing here starts a device: it serves those that the process uses already.
    """

    def is_ready(self) -> bool:
        """Whether the process uses CUDA."""
        return torch.cuda.is_initialized()  # type: ignore[no-untyped-call]

    def register(self, address: int, size: int) -> None:
        """Locks pages in memory, and makes them known to all devices.

        Args:
            address: Of the first page.
            size: In bytes, a multiple of the page's.

        Raises:
            RuntimeError: The driver says no.
        """
        devices = _devices_in_use()
        if not devices:
            raise RuntimeError("no device is in use")
        cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(devices[0]):
            code = cudart.cudaHostRegister(address, size, _PORTABLE)
            if int(code) == 0:
                return
            # CUDA keeps the error for whoever asks next, which would be a kernel of the user.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=f"cuda:{devices[0]}")
        raise RuntimeError(f"cudaHostRegister: {cudart.cudaGetErrorString(code)}")

    def enter_thread(self) -> None:
        """Prepares a thread that is going to call `wait_for_readers`."""
        devices = _devices_in_use()
        if devices:
            torch.cuda.set_device(devices[0])
        # Otherwise waiting for an event here would spoil the graph that another thread captures.
        with contextlib.suppress(OSError, AttributeError):  # no CUDA but ROCm
            mode = ctypes.c_int(_THREAD_LOCAL)
            driver = ctypes.CDLL("libcuda.so.1")
            driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def wait_for_readers(self) -> None:
        """Returns when all is done that any stream of torch has been asked to do by now.

        Nobody can tell which stream reads a tensor that has died, so this looks at them all. Those
        that have nothing to do, which most have, cost a microsecond.
        """
        for device in _devices_in_use():
            events = []
            for stream in _streams(device):
                if not _is_capturing(stream) and not stream.query():
                    event = torch.Event(f"cuda:{device}", blocking=True)
                    event.record(stream)
                    events.append(event)
            for event in events:
                event.synchronize()


def _devices_in_use() -> list[int]:
    """The devices that have a context; those that a call would give one first cost memory."""
    current = torch.cuda.current_device()
    has_context = torch._C._cuda_hasPrimaryContext  # type: ignore[attr-defined]
    devices = [index for index in range(torch.cuda.device_count()) if has_context(index)]
    return sorted(devices, key=lambda index: index != current)


@functools.cache
def _streams(device: int) -> list[torch.cuda.Stream]:
    streams = {torch.cuda.default_stream(device)}
    with torch.cuda.device(device):
        for priority in _PRIORITIES:
            found: set[Any] = set()
            for _ in range(4 * _STREAMS_OF_A_PRIORITY):  # other threads may take some meanwhile
                if len(found) < _STREAMS_OF_A_PRIORITY:
                    found.add(torch.cuda.Stream(device, priority=priority))  # type: ignore[no-untyped-call]
            streams |= found
    return list(streams)


def _is_capturing(stream: Any) -> bool:
    """Whether a graph is being made of what the stream is given; asking for more would spoil it."""
    if hasattr(stream, "is_capturing"):  # from torch 2.13 on
        return stream.is_capturing()
    with torch.cuda.stream(stream):
        return torch.cuda.is_current_stream_capturing()
