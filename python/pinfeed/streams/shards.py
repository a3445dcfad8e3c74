"""What a stream is read from: an iterable, a function that returns one, or shards."""

from __future__ import annotations

import hashlib
import multiprocessing.context
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from multiprocessing.reduction import ForkingPickler
from typing import Any

from pinfeed.streams.shared_cells import SharedCells

_NAME_LENGTH = 200  # a shard may be anything, a large array too
_NAME_LEVELS = 3  # and a list that holds itself


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
        # Of an iterator: whether its only pass began, here or in a worker.
        is_iterator = open_shard is None and isinstance(self._source, Iterator)
        self._begun = SharedCells([False]) if is_iterator else None

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

    @cached_property
    def shard_names(self) -> str:
        """What tells this list of shards from others: the first name, and a digest of all.

        Of paths and URLs the last component counts, so that a folder may move; of objects that
        aren't plain values, their type.
        """
        if not self.has_shards:
            return ""
        names = [_plain_name(shard) for shard in self._source]
        digest = hashlib.sha256()
        for name in names:
            encoded = name.encode("utf-8", "surrogatepass")  # any str, characters or not
            digest.update(b"%d:%b" % (len(encoded), encoded))
        return f"{names[0][:_NAME_LENGTH]}, ... ({digest.hexdigest()[:16]})"

    def require_unread(self, workers: int = 1) -> None:
        """Raises RuntimeError if it is an iterator that was begun, or is for several workers."""
        if self._begun is None:
            return
        kind = f"source is an iterator ({self!r})"
        way_out = "pass a function that returns a new one"
        if workers > 1:
            raise RuntimeError(
                f"StreamDataset: {kind}, which can't be read by {workers} workers; {way_out}"
            )
        if self._begun.values[0]:
            raise RuntimeError(
                f"StreamDataset: {kind}, which can be read once, and has been; {way_out}"
            )

    def samples(self, shard: int) -> Iterator[Any]:
        """The samples of a shard.

        Raises:
            RuntimeError: They are those of an iterator that was begun.
        """
        if self._begun is not None:
            self.require_unread()  # two passes may have been made before either began
            self._begun.values[0] = True
        if self._open_shard is not None:
            return iter(self._opened(self._open_shard, self._source[shard]))
        return iter(self._source if _is_iterable(self._source) else self._opened(self._source))

    @staticmethod
    def _opened(function: Any, *arguments: Any) -> Any:
        try:
            samples = function(*arguments)
        except StopIteration as error:  # such as of next() in there; it would end the stream
            raise RuntimeError(f"{function!r} raised StopIteration") from error
        return _not_split(samples)

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


def _plain_name(shard: Any, levels: int = _NAME_LEVELS) -> str:
    if isinstance(shard, str | os.PathLike):
        text = os.fsdecode(shard)
        path = text.split("?")[0] if "://" in text else text  # without what a link is signed with
        return path.rstrip("/").rpartition("/")[2] or text
    if isinstance(shard, list | tuple) and levels > 0:
        return f"({', '.join(_plain_name_in_list(item, levels - 1) for item in shard)})"
    is_plain = isinstance(shard, int | float | complex | bytes | range | type(None))
    return repr(shard) if is_plain else type(shard).__name__


def _plain_name_in_list(item: Any, levels: int) -> str:
    name = _plain_name(item, levels)
    # Quoted, so that one with a comma is not taken for two.
    return repr(name) if isinstance(item, str | os.PathLike) else name


def _not_split(source: Any) -> Any:
    """Raises if the samples are dealt out to ranks and workers before they come here."""
    if getattr(source, "is_split_stream", False):
        raise TypeError(
            f"StreamDataset: source is a {type(source).__name__} already, of whose samples each "
            "worker of each rank gets a part; dealt out twice, most would reach nobody. Pass what "
            "it was made from"
        )
    return source


def _checked_iterable(source: Any) -> Any:
    expected = (
        "StreamDataset: source must be an iterable of samples, a function that returns one, "
        "or with open= a list of shards"
    )
    if isinstance(source, str | bytes | os.PathLike):
        raise TypeError(f"{expected}, got {source!r}; pass [{source!r}] and open=")
    if not _is_iterable(source) and not callable(source):
        raise TypeError(f"{expected}, got {type(source).__name__}")
    return _not_split(source)


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
