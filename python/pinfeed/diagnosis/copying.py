"""Copies of a loader's parts, and restoring of random states."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from pinfeed.arguments import ARRAYS

# The copy shares larger containers, strings, arrays and buffers, so that a dataset isn't in memory twice.
# It also shares arrays beyond a total, and arrays on devices, in shared memory or of subclasses.
_MAX_ENTRIES = 100_000
_MAX_BYTES = 1_000_000
_MAX_BYTES_TOGETHER = 50_000_000
_SIZED = (list, tuple, dict, set, frozenset, str, bytes, bytearray)
_NUMBERS = (int, float, bool, type(None))
_SHARED = (torch.nn.Module, type, types.FunctionType, types.ModuleType)


def copied(parts: Any) -> tuple[Any, list[Any]]:
    """Copies objects, but shares parts that are large or can't be copied.

    Counters, random generators, positions and caches are copied, so using the copy doesn't change the
    originals. Large arrays and tensors, long lists, functions, open files and objects with a
    ``__del__``, which may close or delete something, are shared.

    Args:
        parts: Objects in a container; common parts stay common in the copies.

    Returns:
        The copy, and the objects that could not be copied.
    """
    pickler = _Copier(buffer := io.BytesIO())
    try:
        pickler.dump(parts)
        unpickler = pickle.Unpickler(io.BytesIO(buffer.getvalue()))
        unpickler.persistent_load = pickler.shared.__getitem__  # type: ignore[method-assign]
        return unpickler.load(), pickler.not_copied
    except Exception:  # noqa: BLE001, for example a state that can't be set
        return parts, list(parts)


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Restores the random states of Python, NumPy, torch and its accelerator at the end."""
    owners: list[tuple[Any, Any]] = [
        (random.getstate, random.setstate),
        (np.random.get_state, np.random.set_state),
        (torch.get_rng_state, torch.set_rng_state),
    ]
    if torch.accelerator.is_available():
        device = torch.get_device_module()
        owners.append((device.get_rng_state, device.set_rng_state))
    states = [get_state() for get_state, _ in owners]
    try:
        yield
    finally:
        for (_, set_state), state in zip(owners, states, strict=True):
            set_state(state)


class _Copier(pickle.Pickler):
    """Pickles objects except for the shared ones."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.shared: list[Any] = []  # by persistent id
        self.not_copied: list[Any] = []  # shared objects that could not be pickled
        self._bytes_left = _MAX_BYTES_TOGETHER
        self._is_copied: dict[int, bool] = {}  # arrays, by their id

    @override
    def persistent_id(self, value: Any) -> int | None:
        kind = type(value)
        if kind in _NUMBERS:  # fast path, because there are many
            return None
        if kind in _SIZED:
            is_copied = len(value) <= _MAX_ENTRIES
        elif kind is pickle.PickleBuffer:  # of an array that is copied
            is_copied = value.raw().nbytes <= _MAX_BYTES
        elif isinstance(value, ARRAYS):
            is_copied = self._copies(value)
        elif isinstance(value, _SHARED):
            is_copied = False
        elif not (is_copied := _can_be_copied(value)):
            self.not_copied.append(value)
        if is_copied:
            return None
        self.shared.append(value)
        return len(self.shared) - 1

    def _copies(self, array: Any) -> bool:
        """Whether an array is small enough to copy; the same answer for each reference to it."""
        if id(array) not in self._is_copied:
            size = _bytes_to_copy(array)
            self._is_copied[id(array)] = size <= min(_MAX_BYTES, self._bytes_left)
            self._bytes_left -= size * self._is_copied[id(array)]
        return self._is_copied[id(array)]


def _bytes_to_copy(value: Any) -> int:
    """Returns the bytes of an array or tensor; too many for a subclass or shared memory."""
    if type(value) is np.ndarray:
        return value.nbytes
    if type(value) is torch.Tensor and (value.device.type, value.layout) == ("cpu", torch.strided):
        storage = value.untyped_storage()  # pickle copies all of it
        return _MAX_BYTES + 1 if storage.is_shared() else storage.nbytes()
    return _MAX_BYTES + 1


def _can_be_copied(value: Any) -> bool:
    """Whether an object can be copied by pickling; not open files, locks, or objects with threads."""
    if hasattr(type(value), "__del__") and not isinstance(value, io.IOBase):
        return False
    # A thread that waits on the original, such as a ``queue.Queue``, does not see the copy.
    if any(
        isinstance(attribute, threading.Condition | threading.Thread)
        for attribute in getattr(value, "__dict__", {}).values()
    ):
        return False
    try:
        reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if not isinstance(reduced, str):  # some classes can't be created without arguments
            getattr(reduced[0](*reduced[1]), "__setstate__", None)
    except Exception:  # noqa: BLE001, the object can't be pickled
        return False
    return True
