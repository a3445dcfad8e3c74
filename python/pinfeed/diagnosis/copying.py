"""Copies of what a loader holds, and random states that are put back."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from typing_extensions import override

# Larger containers and strings are shared with the copy: nobody wants a dataset in memory twice.
_MOST_ENTRIES = 10_000
_SIZED = (list, tuple, dict, set, frozenset, str, bytes, bytearray)
_MOST_NUMBERS = 1_000_000  # a list of indices may be shuffled in its place
# So are arrays and buffers of more bytes, those beyond so many bytes together, and those of devices, in
# shared memory, or of subclasses.
_MOST_BYTES = 1_000_000
_MOST_BYTES_TOGETHER = 50_000_000
_SHARED = (
    np.ndarray,
    torch.Tensor,
    torch.nn.Module,
    type,
    types.FunctionType,
    types.ModuleType,
    pickle.PickleBuffer,
)


def copied(parts: Any) -> tuple[Any, list[Any]]:
    """A copy of objects, in which what is large and what can't be copied is the original.

    Counters, generators of random numbers, positions and caches are copied, so that using the copy
    leaves them as they are. Large arrays and tensors, long lists, functions, open files and objects
    with a ``__del__``, which may close or delete what they hold, are shared.

    Args:
        parts: Objects in a container; what they have in common, the copies have in common.

    Returns:
        The copy, and the objects that could not be copied.
    """
    pickler = _Copier(buffer := io.BytesIO())
    try:
        pickler.dump(parts)
        unpickler = _Loader(io.BytesIO(buffer.getvalue()))
        unpickler.persistent_load = pickler.shared.__getitem__  # type: ignore[method-assign]
        return unpickler.load(), pickler.not_copied
    except Exception:  # noqa: BLE001, a state that can't be set, and whatever else
        return parts, list(parts)


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Puts the random states of Python, NumPy, torch and its accelerator back at the end."""
    python, state = random.getstate(), torch.get_rng_state()
    numpy = np.random.get_state()  # noqa: NPY002, the global one, which samples may draw from
    device = torch.get_device_module() if torch.accelerator.is_available() else None
    on_device = None if device is None else device.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(state)
        if device is not None:
            device.set_rng_state(on_device)


def _is_long(value: Any) -> bool:
    is_of_numbers = type(value) is list and len(value) > 0 and type(value[0]) in (int, float)
    return len(value) > (_MOST_NUMBERS if is_of_numbers else _MOST_ENTRIES)


def _is_plain_array(value: Any) -> bool:
    """Whether it is no subclass, and in the memory of the CPU that this process alone has."""
    if type(value) is torch.Tensor:
        is_here = value.device.type == "cpu" and value.layout == torch.strided
        return is_here and not value.is_shared()  # type: ignore[no-untyped-call]
    return type(value) is np.ndarray


class _Loader(pickle.Unpickler):
    pass


class _Copier(pickle.Pickler):
    """Pickles objects but for those that are shared."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.shared: list[Any] = []  # by the number that stands for them
        self.not_copied: list[Any] = []  # those of them that could not be pickled
        self._room = _MOST_BYTES_TOGETHER

    @override
    def persistent_id(self, value: Any) -> int | None:
        if type(value) in _SIZED:
            if not _is_long(value):
                return None
        elif type(value) is pickle.PickleBuffer:  # of an array that is copied
            if value.raw().nbytes <= _MOST_BYTES:
                return None
        elif _is_plain_array(value) and value.nbytes <= min(_MOST_BYTES, self._room):
            self._room -= value.nbytes
            return None
        elif hasattr(type(value), "__del__") and not isinstance(value, io.IOBase):
            self.not_copied.append(value)
        elif not isinstance(value, _SHARED):
            try:
                reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
                if not isinstance(reduced, str):  # made anew, it must be there to be asked
                    getattr(reduced[0](*reduced[1]), "__setstate__", None)
            except Exception:  # noqa: BLE001, an open file, a lock; a __new__ that wants more
                self.not_copied.append(value)
            else:
                return None
        self.shared.append(value)
        return len(self.shared) - 1
