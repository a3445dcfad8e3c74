"""The shards of a stream, read in order from any position."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing.context
import operator
import os
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, islice, repeat
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.utils.data import IterableDataset

from pinfeed.arguments import Problem, known_length, require_no_table
from pinfeed.imports import add_note

_NAME_LENGTH = 200  # in messages, because a shard may be a large array
_MAX_STARTS = 64

_EXPECTED = (
    "StreamDataset: source must be an iterable of samples, a function that returns one, "
    "or with open_shard= a list of shards"
)

# The start of a shard: its position in the order of shards, and the number of samples before it.
Start = Sequence[int]


class StreamSource:
    """The source of a stream: shards, or an iterable of samples, which counts as one shard.

    For ``source`` and ``open_shard``, see `StreamDataset`. A Hugging Face ``IterableDataset`` is treated
    as a list of its shards.
    """

    def __init__(self, source: Any, open_shard: Callable[[Any], Iterable[Any]] | None) -> None:
        if open_shard is not None and not callable(open_shard):
            raise TypeError(
                "StreamDataset: open_shard must be a function that takes a shard, got "
                f"{type(open_shard).__name__}"
            )
        self._is_hugging_face = open_shard is None and _is_hugging_face(source)
        if self._is_hugging_face:
            open_shard = functools.partial(source.shard, source.num_shards)
            source = range(source.num_shards)
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
        """The number of shards; without shards, the number of samples, if known."""
        return known_length(self._source)

    @property
    def shards(self) -> int:
        """The number of shards; 1 for a stream without."""
        return len(self._source) if self.has_shards else 1

    @functools.cached_property
    def shard_names(self) -> str:
        """The identity of this list of shards: the first name, and a digest of all names.

        A path or URL is named by its last component, so that a folder may move. Other objects, unless
        plain values, are named by their type.
        """
        if not self.has_shards:
            return ""
        names = [str(_plain(shard)) for shard in self._source]
        digest = hashlib.sha256()
        for name in names:
            encoded = name.encode("utf-8", "surrogatepass")  # any str, characters or not
            digest.update(b"%d:%b" % (len(encoded), encoded))
        return f"{names[0][:_NAME_LENGTH]}, ... ({digest.hexdigest()[:16]})"

    def require_readable(self, workers: int, is_again: bool) -> None:
        """Raises RuntimeError for an iterator with several workers, or in a second pass."""
        if (
            self.has_shards
            or not isinstance(self._source, Iterator)
            or (workers == 1 and not is_again)
        ):
            return
        where = f"with {workers} workers" if workers > 1 else "in a second pass"
        raise RuntimeError(
            f"StreamDataset: source must not be an iterator {where}, got a {self!r}; pass a function that "
            "returns a new one"
        )

    def samples(
        self, shard: int, workers: int, ranks: int, are_ranks_given: bool, epoch: int
    ) -> Iterator[Any]:
        """Opens a shard for this number of workers and ranks.

        ``are_ranks_given`` tells whether the user passed the rank. An IterableDataset may shard over
        workers and ranks by itself, so it raises TypeError; Hugging Face's can be read without sharding.
        """
        if self._open_shard is not None:
            samples = _opened(self._open_shard, self._source[shard])
        else:
            samples = self._source if _is_iterable(self._source) else _opened(self._source)
        if self._is_hugging_face:
            samples.set_epoch(epoch)
        if _is_hugging_face(samples):
            _require_not_split(samples, ranks, are_ranks_given)
            return _hugging_face_samples(samples)
        if isinstance(samples, IterableDataset):
            _require_not_split(samples, ranks, are_ranks_given)
            if workers > 1:
                kind = type(samples).__name__
                raise TypeError(
                    "StreamDataset: source must not shard by itself, got an IterableDataset "
                    f"({kind}), which may shard over the {workers} workers; if it does, pass its shards, "
                    "with open_shard=, or num_workers=0; if it yields all samples in each worker, "
                    "pass a function: StreamDataset(lambda: iter(dataset))"
                )
        iterator = iter(samples)
        if samples is not self._source:
            return iterator
        first = list(islice(iterator, 1))
        if first:
            _require_no_name(first[0], samples)
        return chain(first, iterator)

    def name(self, shard: int) -> str:
        """Returns a shard's name for messages."""
        if not self.has_shards:
            return "the stream"
        value = self._source[shard]
        text = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
        return f"shard {shard} of {self.shards}, {text[:_NAME_LENGTH]}"

    def __getstate__(self) -> dict[str, Any]:
        is_sent = multiprocessing.context.get_spawning_popen() is not None
        # Hugging Face datasets pickle, but hold a file descriptor, which spawn accepts only once.
        if is_sent and not self._is_hugging_face:
            _require_picklable("source", self._source)
            _require_picklable("open_shard", self._open_shard)
        return self.__dict__

    def __repr__(self) -> str:
        return f"{self.shards} shards" if self.has_shards else type(self._source).__name__


class ShardReader:
    """Reads shards in order, and records the position at which each one starts.

    Args:
        shards: Shard numbers.
        open_shard: Returns the samples of a shard.
        name: Returns a shard's name for messages.
        starts: Known starts of neighboring shards.
        on_skip: Called with a description of an error, which then ends only its shard. None: errors are
            raised.
        first_needed: Returns the first position that may be read again; earlier starts are dropped.
        read_before: Number of samples to skip at the beginning of a shard, by shard number.
    """

    def __init__(
        self,
        shards: Sequence[int],
        open_shard: Callable[[int], Iterable[Any]],
        name: Callable[[int], str],
        starts: Iterable[Start],
        on_skip: Callable[[str], None] | None,
        first_needed: Callable[[], int],
        read_before: Mapping[int, int],
    ) -> None:
        self.starts: list[Start] = list(starts)
        self._read_before = read_before
        self._shards, self._open_shard, self._name = shards, open_shard, name
        self._on_skip, self._first_needed = on_skip, first_needed
        self._max_starts = max(_MAX_STARTS, 2 * len(self.starts))

    def drop_starts(self, position: int) -> None:
        """Drops the starts that reading from a position does not need."""
        del self.starts[: bisect_right(self.starts, position, key=lambda start: start[1]) - 1]

    def read(self, position: int, lookahead: int) -> Iterator[Any]:
        """Yields the samples from a position on, at most ``lookahead`` samples after the last one.

        Raises ValueError if the data has changed since the starts were recorded.
        """
        self.drop_starts(self._first_needed())  # over all ranks, which share one state
        if self.starts[0][1] > position:
            raise ValueError(
                f"StreamDataset: state['starts'] must reach back to sample {position} of the shards, got "
                f"{self.starts[0][1]}; load an unchanged result of state_dict()"
            )
        first_index = bisect_right(self.starts, position, key=lambda start: start[1]) - 1
        next_starts = deque(self.starts[first_index:])
        while (start := next_starts.popleft())[0] < len(self._shards):
            index, first = start
            read_before = self._read_before.get(self._shards[index], 0)
            first -= read_before  # the position of the shard's first sample
            length = next_starts[0][1] - first if next_starts else None
            counter = Counter()
            try:
                samples = self._open_shard(self._shards[index])
                if length is not None:
                    samples = islice(samples, length)
                samples = counter.counting(samples)
                deque(islice(samples, max(read_before, position - first)), maxlen=0)
                yield from samples
            except Exception as error:
                where = f"{self._name(self._shards[index])}, after {counter.count} of its samples"
                if self._on_skip is None:
                    add_note(error, f"StreamDataset: in {where}")
                    raise
                self._on_skip(f"{where}: {type(error).__name__}: {error}")
            if length is None:
                needed = max(read_before, position - first - lookahead)
                self._require(index, counter.count, needed)
                next_starts.append((index + 1, first + counter.count))
                self.starts.append(next_starts[0])
                if len(self.starts) > self._max_starts:
                    self.drop_starts(self._first_needed())
                    self._max_starts = max(_MAX_STARTS, 2 * len(self.starts))
            else:
                self._require(index, counter.count, length)
        if position - start[1] > lookahead:
            raise fewer_samples("the source", start[1], f"at least {position - lookahead}")

    def _require(self, index: int, count: int, expected: int) -> None:
        if count < expected:
            raise fewer_samples(self._name(self._shards[index]), count, expected)


def fewer_samples(name: str, count: int, expected: Any) -> ValueError:
    """Returns the error of data that has become shorter since a state was saved."""
    text = f"{name} has {count} samples, but had {expected} when the state was saved"
    return ValueError(Problem("StreamDataset", text, hint="load the state with the same data"))


class Counter:
    """Counts the samples taken from an iterator.

    A Python loop can cost more than reading a sample. So ``compress`` takes an item of a second iterator
    with each sample, in C, and the second iterator's length hint gives the count.
    """

    def __init__(self, count: int = 0) -> None:
        """Counts on from ``count``."""
        self._ticks = repeat(True, sys.maxsize - count)

    @property
    def count(self) -> int:
        """Samples taken so far."""
        return sys.maxsize - operator.length_hint(self._ticks)

    def counting(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Yields the samples, and counts each when it is taken."""
        return compress(samples, self._ticks)


def _is_iterable(source: Any) -> bool:
    # A class is called like a function, though its instances may be iterable.
    return not isinstance(source, type) and (
        isinstance(source, Iterable) or hasattr(source, "__getitem__")
    )


def _plain(shard: Any) -> Any:
    """Returns a shard's identity: plain values, or the last component of a path or URL."""
    if isinstance(shard, str | os.PathLike):
        text = os.fsdecode(shard)
        path = text.split("?")[0] if "://" in text else text  # without a signature
        return path.rstrip("/").rpartition("/")[2] or text
    if isinstance(shard, list | tuple):
        return [_plain(item) for item in shard]
    is_plain = isinstance(shard, int | float | complex | bytes | range | type(None))
    return shard if is_plain else type(shard)


def _opened(function: Any, *arguments: Any) -> Any:
    try:
        samples = function(*arguments)
    except StopIteration as error:  # for example from next(); it would end the stream
        raise RuntimeError(f"StreamDataset: {function!r} raised StopIteration") from error
    if samples is None:
        raise TypeError(f"StreamDataset: {function!r} must return or yield samples, got None")
    return samples


def _is_hugging_face(source: Any) -> bool:
    datasets = sys.modules.get("datasets")
    return isinstance(source, getattr(datasets, "IterableDataset", ()))


def _require_not_split(dataset: Any, ranks: int, are_ranks_given: bool) -> None:
    """Raises TypeError if an IterableDataset is, or may be, sharded over ranks already."""
    # Not public, but the only indication; if it is missing, trust the user's rank.
    is_split = getattr(dataset, "_distributed", None) is not None
    if ranks == 1 or (are_ranks_given and not is_split):
        return
    kind = "Hugging Face" if _is_hugging_face(dataset) else type(dataset).__name__
    if is_split:
        problem = f"split_dataset_by_node has sharded over {ranks} ranks; pass rank=0, world_size=1"
    else:
        problem = (
            f"may shard over the {ranks} ranks; if it does, pass rank=0, world_size=1, else pass rank and "
            "world_size of this process"
        )
    raise TypeError(
        f"StreamDataset: source must not shard by itself, got an IterableDataset ({kind}), which {problem}"
    )


def _hugging_face_samples(dataset: Any) -> Iterator[Any]:
    """Yields all samples of a Hugging Face ``IterableDataset``, in any worker."""
    # Its own iterator shards over workers, but iter(batch_size) does not.
    for batch in dataset.iter(batch_size=1):
        is_table = not isinstance(batch, dict)
        yield batch if is_table else {key: values[0] for key, values in batch.items()}


def _checked_iterable(source: Any) -> Any:
    if isinstance(source, str | bytes | os.PathLike):
        raise TypeError(f"{_EXPECTED}, got {source!r}; pass [{source!r}] and open_shard=")
    require_no_table(source, "StreamDataset: source", "samples")
    if isinstance(source, Collection) and not isinstance(source, Mapping):
        first = next(iter(source), None)
        if isinstance(first, str | os.PathLike):
            raise _names_error(first, source)
    if isinstance(source, Mapping) or not (_is_iterable(source) or callable(source)):
        raise TypeError(f"{_EXPECTED}, got {type(source).__name__}")
    return source


def _require_no_name(first: Any, source: Any) -> None:
    """Raises TypeError if the first sample of an iterator, such as ``glob.iglob``'s, names a file."""
    if isinstance(first, os.PathLike) or (isinstance(first, str) and os.path.isfile(first)):
        raise _names_error(first, source)


def _names_error(first: Any, source: Any) -> TypeError:
    name = str(first) if isinstance(first, str) else first  # no np.str_
    return TypeError(
        f"{_EXPECTED}, got a {type(source).__name__} of names, such as {name!r}; pass open_shard=, a "
        "function that returns the samples of a shard, or, if the strings are the samples, a function: "
        "StreamDataset(lambda: source)"
    )


def _checked_shards(source: Any) -> list[Any]:
    if isinstance(source, str | bytes | os.PathLike) or not isinstance(source, Iterable):
        kind = type(source).__name__
        hint = f"; pass sorted(glob.glob({source!r}))" if isinstance(source, str) else ""
        raise TypeError(
            f"StreamDataset: with open_shard, source must be a list of shards, got {kind}{hint}"
        )
    shards = list(source)
    if not shards:
        raise ValueError(
            "StreamDataset: expected at least one shard, got none; check how you list them"
        )
    return shards


def _require_picklable(name: str, value: Any) -> None:
    try:
        ForkingPickler.dumps(value)
    except Exception as error:
        raise TypeError(
            f"StreamDataset: {name} must be picklable for workers started by spawn or forkserver, but "
            f"{type(value).__name__} is not: {error}; pass a function of a module instead of a lambda, "
            "an open file or an iterator, or let the DataLoader fork "
            '(multiprocessing_context="fork")'
        ) from error
