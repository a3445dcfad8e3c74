"""What a stream is read from: an iterable, a function that returns one, or shards."""

from __future__ import annotations

import multiprocessing.context
import os
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

_NAME_LENGTH = 200  # a shard may be anything, a large array too


class StreamSource:
    """Something whose samples can be read, shard by shard; without shards it is one itself.

    Args:
        source: An iterable of samples, or a function that returns one; with ``open_shard`` shards.
        open_shard: Returns the samples of a shard.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: There is no shard.
    """

    def __init__(self, source: Any, open_shard: Callable[[Any], Iterable[Any]] | None) -> None:
        if open_shard is not None and not callable(open_shard):
            raise TypeError(
                "StreamDataset: open must be a function of a shard, got "
                f"{type(open_shard).__name__}"
            )
        self._source: Any = (
            _checked_iterable(source) if open_shard is None else _checked_shards(source)
        )
        self._open_shard = open_shard

    @property
    def has_shards(self) -> bool:
        """Whether there are shards."""
        return self._open_shard is not None

    @property
    def size(self) -> int | None:
        """The number of shards, or else of samples, if that is known."""
        try:
            return len(self._source)
        except Exception:  # noqa: BLE001, there are lengths that raise whatever they like
            return None

    @property
    def shards(self) -> int:
        """The number of shards; 1 for a stream without."""
        return len(self._source) if self.has_shards else 1

    @property
    def is_iterator(self) -> bool:
        """Whether it can be read once only."""
        return not self.has_shards and isinstance(self._source, Iterator)

    def samples(self, shard: int) -> Iterator[Any]:
        """The samples of a shard."""
        if self._open_shard is not None:
            return iter(self._open_shard(self._source[shard]))
        return iter(self._source if _is_iterable(self._source) else self._source())

    def name(self, shard: int) -> str:
        """What messages call a shard."""
        if not self.has_shards:
            return "the stream"
        value = self._source[shard]
        text = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
        return f"shard {shard} of {self.shards}, {text[:_NAME_LENGTH]}"

    def __getstate__(self) -> dict[str, Any]:
        if multiprocessing.context.get_spawning_popen() is not None:
            _require_picklable("source", self._source)
            _require_picklable("open", self._open_shard)
        return self.__dict__

    def __repr__(self) -> str:
        return f"{self.shards} shards" if self.has_shards else type(self._source).__name__


def _is_iterable(source: Any) -> bool:
    # A class is none, though its instances may be; called, it makes one.
    return not isinstance(source, type) and (
        isinstance(source, Iterable) or hasattr(source, "__getitem__")
    )


def _checked_iterable(source: Any) -> Any:
    expected = (
        "StreamDataset: source must be an iterable of samples, a function that returns one, "
        "or with open= a list of shards"
    )
    if isinstance(source, str | bytes | os.PathLike):
        raise TypeError(f"{expected}, got {source!r}; pass [{source!r}] and open=")
    if not _is_iterable(source) and not callable(source):
        raise TypeError(f"{expected}, got {type(source).__name__}")
    return source


def _checked_shards(source: Any) -> list[Any]:
    if isinstance(source, str | bytes | os.PathLike) or not isinstance(source, Iterable):
        kind = type(source).__name__
        raise TypeError(f"StreamDataset: with open, source must be a list of shards, got {kind}")
    shards = list(source)
    if not shards:
        raise ValueError("StreamDataset: expected at least one shard, got none")
    return shards


def _require_picklable(name: str, value: Any) -> None:
    try:
        ForkingPickler.dumps(value)
    except Exception as error:
        raise TypeError(
            f"StreamDataset: {name} must pickle, because workers that are started by spawn or "
            f"forkserver get a copy of it, but {type(value).__name__} doesn't: {error}; pass a "
            "function of a module instead of a lambda, an open file or an iterator, or let the "
            'DataLoader fork (multiprocessing_context="fork")'
        ) from error
