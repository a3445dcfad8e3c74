"""Allocators for batches: the native pool, pinned memory, or memory shared with the main process."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch

from pinfeed import runtime
from pinfeed.memory.worker import worker_memory
from pinfeed.runtime import is_worker_process

Pin = bool | Literal["auto"]

#: How native code allocates its output: with a callable, or in its own buffer pool.
Allocator = Callable[[tuple[int, ...], str], torch.Tensor] | type[torch.Tensor]

#: Fill new memory with a pattern, like the native pool, to expose bytes that are never written.
_POISON = os.environ.get("PINFEED_DEBUG") == "1"

#: Functions that return whether a device is initialized, one per device that torch was built for.
_ARE_INITIALIZED: list[Callable[[], bool]] = [
    device.is_initialized for device in (torch.cuda, torch.xpu) if device._is_compiled()
]

_is_refused = False  # whether the system has refused to pin memory for this process


def batch_allocator(pin: Pin) -> Allocator:
    """Returns the allocator for the outputs of a collation in this process.

    A DataLoader worker writes into worker memory, or into torch's shared memory without it. Neither is
    pinned, regardless of ``pin``, because DeviceLoader copies through its own pinned memory.
    """
    if runtime.is_main or not is_worker_process():
        return _pinned_output if pin and is_pinning_wanted(pin) else torch.Tensor
    return _shared_output if worker_memory() is None else _worker_output


def as_output(tensor: torch.Tensor, pin: Pin) -> torch.Tensor:
    """Copies a small tensor that torch created to pinned memory, if batches are pinned."""
    is_plain = type(tensor) is torch.Tensor and tensor.is_cpu and tensor.layout == torch.strided
    is_special = tensor.requires_grad or tensor.is_quantized or tensor.is_nested
    if is_worker_process() or not is_plain or is_special or not is_pinning_wanted(pin):
        return tensor
    return pinned_empty(tuple(tensor.shape), tensor.dtype).copy_(tensor)


def is_pinning_wanted(pin: Pin) -> bool:
    """Whether to pin batches of this process now.

    ``"auto"`` never initializes an accelerator, because that takes seconds and hundreds of megabytes,
    and training may run on the CPU. A program that uses one moves the model there before the first
    batch.
    """
    if pin == "auto":
        return not _is_refused and is_accelerator_in_use()
    if pin and not torch.accelerator.is_available():
        raise RuntimeError(
            "Collate: pin_memory=True needs an accelerator to pin memory for, and torch finds none; leave "
            "pin_memory out to pin only if there is one"
        )
    return pin and not _is_refused


def is_accelerator_in_use() -> bool:
    """Whether this process has initialized a device that copies from pinned memory."""
    # False in a process that was forked from an initialized one.
    return bool(_ARE_INITIALIZED) and any(is_initialized() for is_initialized in _ARE_INITIALIZED)


def torch_pinned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Allocates memory of torch's caching host allocator, pinned for the current device.

    The allocator reuses a block only after all streams have finished reading it.
    """
    return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)


def pinned_empty(
    shape: tuple[int, ...], dtype: torch.dtype, allocate: Callable[[], torch.Tensor] | None = None
) -> torch.Tensor:
    """Allocates a pinned tensor, or an ordinary one after pinning has failed.

    ``allocate`` (None: `torch_pinned`) returns it or raises RuntimeError. The first failure warns, and
    this process does not try again.
    """
    global _is_refused
    if not _is_refused:
        try:
            return torch_pinned(shape, dtype) if allocate is None else allocate()
        except RuntimeError as error:
            _is_refused = True
            warnings.warn(
                "pinfeed: host memory could not be pinned, so this process copies to and from its "
                f"devices more slowly; free host memory and start again: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
    return torch.empty(shape, dtype=dtype, device="cpu")


def _pinned_output(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return _poisoned(pinned_empty(shape, getattr(torch, dtype)))


def _worker_output(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    memory = worker_memory()
    assert memory is not None
    return _poisoned(memory.output(shape, getattr(torch, dtype)))


def _shared_output(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    empty = torch.empty(0, dtype=getattr(torch, dtype), device="cpu")
    items = math.prod(shape)
    if items == 0:
        return empty.reshape(shape)
    size = items * empty.itemsize
    try:
        storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        free = ""
        if os.path.exists("/dev/shm"):
            status = os.statvfs("/dev/shm")
            free, whole = (f"{n * status.f_frsize:,}" for n in (status.f_bavail, status.f_blocks))
            free = f" (/dev/shm has {free} of {whole} bytes free)"
        raise OSError(
            f"Collate: not enough shared memory for {size:,} bytes{free}: "
            f"{error}; make /dev/shm larger (docker run --shm-size=16g or --ipc=host; elsewhere "
            "mount -o remount,size=16g /dev/shm), or prefetch less: fewer workers, a smaller "
            "prefetch_factor, smaller batches"
        ) from error
    return _poisoned(empty.set_(storage, 0, shape))  # type: ignore[call-overload]


def _poisoned(tensor: torch.Tensor) -> torch.Tensor:
    if _POISON:
        storage: Any = tensor.untyped_storage()
        storage.fill_(0xCB)
    return tensor
