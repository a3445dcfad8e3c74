"""Copies of what a loader holds, and random states that are put back."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import io
import math
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

# Larger containers and strings are shared with the copy: nobody wants a dataset in memory twice.
_MOST_ENTRIES = 10_000
_SIZED = (list, tuple, dict, set, frozenset, str, bytes, bytearray)
_NUMBERS = (int, float, bool, type(None))
_MOST_NUMBERS = 1_000_000  # a list of indices may be shuffled in its place
# So are arrays and buffers of more bytes, those beyond so many bytes together, and those of devices, in
# shared memory, or of subclasses.
_MOST_BYTES = 1_000_000
_MOST_BYTES_TOGETHER = 50_000_000
_SHARED = (
    torch.nn.Module,
    type,
    types.FunctionType,
    types.ModuleType,
    pickle.PickleBuffer,
)


def copied(parts: Any) -> tuple[Any, list[Any]]:
    """A copy of objects, in which what is large and what can't be copied is the original.

    Counters, generators of random numbers, positions and caches are copied, so that using the copy
    leaves them as they are. Large arrays and tensors, long lists, functions and open files are shared.
    The copy of an object with a ``__del__``, which may close or delete what it holds, ends without it.

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


def _bytes_to_copy(value: Any) -> float:
    """Of an array or tensor; infinite if it is a subclass, or in memory that others have, too."""
    if type(value) is np.ndarray:
        return value.nbytes
    if type(value) is torch.Tensor:
        is_here = value.device.type == "cpu" and value.layout == torch.strided
        if is_here and not value.is_shared():  # type: ignore[no-untyped-call]
            return value.untyped_storage().nbytes()  # whose rest comes along
    return math.inf


def _has_waiting_threads(value: Any) -> bool:
    """Whether threads wait for each other by it, as by a ``queue.Queue``: they would not know of a copy."""
    held = getattr(value, "__dict__", {}).values()
    return any(isinstance(one, threading.Condition | threading.Thread) for one in held)


def _new(cls: Any, *arguments: Any) -> Any:
    return cls.__new__(cls, *arguments)


@functools.lru_cache(64)
def _without_del(cls: type) -> type:
    """The class with a ``__del__`` that does nothing: what the original holds is not the copy's to end."""

    def reduce(self: Any, protocol: Any) -> Any:
        # A worker that is sent it has the class itself.
        function, arguments, *rest = super(quiet, self).__reduce_ex__(protocol)
        if function is copyreg.__newobj__:  # type: ignore[attr-defined] # which only takes the own class
            function = _new
        return (function, tuple(cls if a is quiet else a for a in arguments), *rest)

    names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    methods = {"__del__": lambda self: None, "__reduce_ex__": reduce}
    quiet: Any = type(cls)(cls.__name__, (cls,), names | methods)
    return quiet


def _as_copied(value: Any) -> Any:
    """A class as the copies are of; anything else as it is."""
    is_ended = isinstance(value, type) and hasattr(value, "__del__")
    return _without_del(value) if is_ended and not issubclass(value, io.IOBase) else value


def _can_be_copied(value: Any) -> bool:
    """Whether it pickles by itself; an open file or a lock doesn't, nor what its ``__new__`` wants more for."""
    try:
        reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if not isinstance(reduced, str):  # made anew, it must be there to be asked
            getattr(reduced[0](*map(_as_copied, reduced[1])), "__setstate__", None)
    except Exception:  # noqa: BLE001, whatever it says
        return False
    return True


class _Loader(pickle.Unpickler):
    pass


class _Copier(pickle.Pickler):
    """Pickles objects but for those that are shared."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.shared: list[Any] = []  # by the number that stands for them
        self.not_copied: list[Any] = []  # those of them that could not be pickled
        self._room: float = _MOST_BYTES_TOGETHER
        self._is_copied: dict[int, bool] = {}  # arrays, by their id

    @override
    def persistent_id(self, value: Any) -> int | None:
        if type(value) in _NUMBERS:  # of which there are many
            return None
        if type(value) in _SIZED:
            if not _is_long(value):
                return None
        elif type(value) is pickle.PickleBuffer:  # of an array that is copied
            if value.raw().nbytes <= _MOST_BYTES:
                return None
        elif isinstance(value, ARRAYS):
            if self._copies(value):
                return None
        elif not isinstance(value, _SHARED):
            if not _has_waiting_threads(value) and _can_be_copied(value):
                return None
            self.not_copied.append(value)
        self.shared.append(_as_copied(value))
        return len(self.shared) - 1

    def _copies(self, array: Any) -> bool:
        """Whether there is room for it; the same each time that it is met."""
        if id(array) not in self._is_copied:
            size = _bytes_to_copy(array)
            self._is_copied[id(array)] = size <= min(_MOST_BYTES, self._room)
            self._room -= size if self._is_copied[id(array)] else 0
        return self._is_copied[id(array)]
