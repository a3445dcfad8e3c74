"""The shards of a stream, and how they are read one after another, from any position on."""

from __future__ import annotations

import hashlib
import multiprocessing.context
import operator
import os
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, islice, repeat
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.utils.data import IterableDataset

from pinfeed.optional import add_note

_NAME_LENGTH = 200  # a shard may be anything, a large array too
_MOST_STARTS = 64

_EXPECTED = (
    "StreamDataset: source must be an iterable of samples, a function that returns one, "
    "or with open_shard= a list of shards"
)

# Where a shard starts: its place in the order of shards, and how many samples come before it.
Start = Sequence[int]


class StreamSource:
    """What a stream is read from: shards; or an iterable of samples, which counts as one shard.

    ``source`` and ``open_shard`` are those of `StreamDataset`. A Hugging Face ``IterableDataset`` is a
    list of its shards, and knows how to open them.
    """

    def __init__(self, source: Any, open_shard: Callable[[Any], Iterable[Any]] | None) -> None:
        if open_shard is not None and not callable(open_shard):
            raise TypeError(
                "StreamDataset: open_shard must be a function of a shard, got "
                f"{type(open_shard).__name__}"
            )
        self._is_hugging_face = open_shard is None and _is_hugging_face(source)
        if self._is_hugging_face:
            open_shard = partial(source.shard, source.num_shards)
            source = range(source.num_shards)
        self._source: Any = (
            _checked_iterable(source) if open_shard is None else _checked_shards(source)
        )
        self._open_shard = open_shard
        self._names: str | None = None

    @property
    def has_shards(self) -> bool:
        """Whether there are shards."""
        return self._open_shard is not None

    @property
    def size(self) -> int | None:
        """The number of shards; without shards that of samples, if it is known."""
        try:
            return len(self._source)
        except Exception:  # noqa: BLE001, there are lengths that raise whatever they like
            return None

    @property
    def shards(self) -> int:
        """The number of shards; 1 for a stream without."""
        return len(self._source) if self.has_shards else 1

    @property
    def shard_names(self) -> str:
        """What tells this list of shards from others: the first name, and a digest of all names.

        The name of a path or a URL is its last component, so that a folder may move. The name of an
        object that is no plain value is its type.
        """
        if self._names is None:
            self._names = self._digest() if self.has_shards else ""
        return self._names

    def _digest(self) -> str:
        names = [str(_plain(shard)) for shard in self._source]
        digest = hashlib.sha256()
        for name in names:
            encoded = name.encode("utf-8", "surrogatepass")  # any str, characters or not
            digest.update(b"%d:%b" % (len(encoded), encoded))
        return f"{names[0][:_NAME_LENGTH]}, ... ({digest.hexdigest()[:16]})"

    def require_readable(self, workers: int, is_again: bool) -> None:
        """Raises RuntimeError for an iterator that several workers are to read, or that is read again."""
        if (
            self.has_shards
            or not isinstance(self._source, Iterator)
            or (workers == 1 and not is_again)
        ):
            return
        reason = (
            f"can't be read by {workers} workers"
            if workers > 1
            else "can be read once, and has been"
        )
        raise RuntimeError(
            f"StreamDataset: source is an iterator ({self!r}), which {reason}; pass a function that "
            "returns a new one"
        )

    def samples(
        self, shard: int, workers: int, ranks: int, are_ranks_given: bool, epoch: int
    ) -> Iterator[Any]:
        """The samples of a shard, which so many workers of so many ranks are about to read.

        ``are_ranks_given`` tells whether the user has said which of the ranks this is. An
        IterableDataset may deal out its samples to workers and ranks by itself, which is a TypeError;
        Hugging Face's can be read without that.
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
                    f"StreamDataset: the source is an IterableDataset ({kind}), and nothing tells whether "
                    f"it deals out its samples to the {workers} workers by itself, as with "
                    "get_worker_info; if so, pass the shards that it reads, with open_shard=, or read "
                    "without workers; and if it yields all samples in each worker, pass a function: "
                    "StreamDataset(lambda: iter(dataset))"
                )
        iterator = iter(samples)
        if samples is not self._source:
            return iterator
        first = list(islice(iterator, 1))
        if first:
            _require_no_name(first[0], samples)
        return chain(first, iterator)

    def name(self, shard: int) -> str:
        """What messages call a shard."""
        if not self.has_shards:
            return "the stream"
        value = self._source[shard]
        text = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
        return f"shard {shard} of {self.shards}, {text[:_NAME_LENGTH]}"

    def __getstate__(self) -> dict[str, Any]:
        is_sent = multiprocessing.context.get_spawning_popen() is not None
        # Hugging Face's do pickle, and hold a file descriptor, which spawn takes only once.
        if is_sent and not self._is_hugging_face:
            _require_picklable("source", self._source)
            _require_picklable("open_shard", self._open_shard)
        return self.__dict__

    def __repr__(self) -> str:
        return f"{self.shards} shards" if self.has_shards else type(self._source).__name__


class ShardReader:
    """Reads shards in order, and notes at which position each one starts.

    Args:
        shards: The numbers of the shards.
        open_shard: Returns the samples of the shard of a number.
        name: Returns what messages call that shard.
        starts: The starts of neighbouring shards, as far as they are known.
        on_skip: Called with the text about an error, which then ends only its shard. None: errors are
            raised.
        first_needed: Returns the first position that may be read again. It is asked when many starts
            are noted, and those before that position are forgotten.
        read_before: How many samples of a shard are left out at its beginning, by its number.
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
        self._most_starts = max(_MOST_STARTS, 2 * len(self.starts))

    def drop_starts(self, position: int) -> None:
        """Forgets the starts that reading from a position on does not need."""
        del self.starts[: bisect_right(self.starts, position, key=lambda start: start[1]) - 1]

    def read(self, position: int, beyond: int) -> Iterator[Any]:
        """The samples from a position on, which lies at most ``beyond`` samples behind the last one.

        Data that is not as it was when the starts were noted is a ValueError.
        """
        self.drop_starts(self._first_needed())  # by any rank, because one state is that of all
        if self.starts[0][1] > position:
            raise ValueError(
                "StreamDataset: starts of the state must reach back to sample "
                f"{position} of the shards, got {self.starts[0][1]}"
            )
        own = bisect_right(self.starts, position, key=lambda start: start[1]) - 1
        known = deque(self.starts[own:])
        while (start := known.popleft())[0] < len(self._shards):
            place, first = start
            read_before = self._read_before.get(self._shards[place], 0)
            first -= read_before  # where its own first sample lies
            length = known[0][1] - first if known else None
            counter = Counter()
            try:
                samples = self._open_shard(self._shards[place])
                if length is not None:
                    samples = islice(samples, length)
                samples = counter.counting(samples)
                deque(islice(samples, max(read_before, position - first)), maxlen=0)
                yield from samples
            except Exception as error:
                where = f"{self._name(self._shards[place])}, after {counter.count} of its samples"
                if self._on_skip is None:
                    add_note(error, f"StreamDataset: in {where}")
                    raise
                self._on_skip(f"{where}: {type(error).__name__}: {error}")
            if length is None:
                needed = max(read_before, position - first - beyond)
                self._require(place, counter.count, needed)
                known.append((place + 1, first + counter.count))
                self._note(known[0])
            else:
                self._require(place, counter.count, length)
        if position - start[1] > beyond:
            raise ValueError(
                f"StreamDataset: the shards have {start[1]} samples, and had at least "
                f"{position - beyond} when the state was saved; load the state with the same data"
            )

    def _note(self, start: Start) -> None:
        self.starts.append(start)
        if len(self.starts) > self._most_starts:
            self.drop_starts(self._first_needed())
            self._most_starts = max(_MOST_STARTS, 2 * len(self.starts))

    def _require(self, place: int, count: int, expected: int) -> None:
        if count < expected:
            raise ValueError(
                f"StreamDataset: {self._name(self._shards[place])} has {count} samples, and the state "
                f"says that it had {expected}; load the state with the same data"
            )


class Counter:
    """How many samples were taken.

    A loop in Python would cost more than many a sample. So ``compress`` takes an item of another
    iterator with each sample, in C, and that iterator knows how many items it has left.
    """

    def __init__(self, count: int = 0) -> None:
        """Counts on from ``count``."""
        self._ticks = repeat(True, sys.maxsize - count)

    @property
    def count(self) -> int:
        """Samples taken so far."""
        return sys.maxsize - operator.length_hint(self._ticks)

    def counting(self, samples: Iterable[Any]) -> Iterator[Any]:
        """The samples, each of which is counted when it is taken."""
        return compress(samples, self._ticks)


def _is_iterable(source: Any) -> bool:
    # A class is called like a function, though its instances may be iterable.
    return not isinstance(source, type) and (
        isinstance(source, Iterable) or hasattr(source, "__getitem__")
    )


def _plain(shard: Any) -> Any:
    """What names a shard: plain values in lists, with the last component of a path or URL."""
    if isinstance(shard, str | os.PathLike):
        text = os.fsdecode(shard)
        path = text.split("?")[0] if "://" in text else text  # without what a link is signed with
        return path.rstrip("/").rpartition("/")[2] or text
    if isinstance(shard, list | tuple):
        return [_plain(item) for item in shard]
    is_plain = isinstance(shard, int | float | complex | bytes | range | type(None))
    return shard if is_plain else type(shard)


def _opened(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except StopIteration as error:  # such as of next() in there; it would end the stream
        raise RuntimeError(f"{function!r} raised StopIteration") from error


def _is_hugging_face(source: Any) -> bool:
    datasets = sys.modules.get("datasets")
    return isinstance(source, getattr(datasets, "IterableDataset", ()))


def _require_not_split(dataset: Any, ranks: int, are_ranks_given: bool) -> None:
    """Raises TypeError if ranks would share what an IterableDataset has dealt out to them, or may have."""
    # Not public, but nothing else tells; where it is missing, the user's word counts.
    is_split = getattr(dataset, "_distributed", None) is not None
    if ranks == 1 or (are_ranks_given and not is_split):
        return
    kind = "Hugging Face" if _is_hugging_face(dataset) else type(dataset).__name__
    if is_split:
        problem = f"split_dataset_by_node has dealt it out already; give rank=0, world_size=1, not {ranks}"
    else:
        problem = (
            f"nothing tells whether it deals out its samples to the {ranks} ranks by itself, as after "
            "split_dataset_by_node; if so, give rank=0, world_size=1, and else rank and world_size of "
            "this process"
        )
    raise TypeError(f"StreamDataset: the source is an IterableDataset ({kind}), and {problem}")


def _hugging_face_samples(dataset: Any) -> Iterator[Any]:
    """All samples of a Hugging Face ``IterableDataset``, whichever worker this is."""
    # Its iterator would yield the share of a worker; its batches are of all samples.
    for batch in dataset.iter(batch_size=1):
        is_table = not isinstance(batch, dict)
        yield batch if is_table else {key: values[0] for key, values in batch.items()}


def _checked_iterable(source: Any) -> Any:
    if isinstance(source, str | bytes | os.PathLike):
        raise TypeError(f"{_EXPECTED}, got {source!r}; pass [{source!r}] and open_shard=")
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
        f"{_EXPECTED}, got a {type(source).__name__} of names, such as {name!r}; write "
        "StreamDataset(source, open_shard=read_shard), with a function that returns the samples of a "
        "shard, or if strings are the samples StreamDataset(lambda: source)"
    )


def _checked_shards(source: Any) -> list[Any]:
    if isinstance(source, str | bytes | os.PathLike) or not isinstance(source, Iterable):
        kind = type(source).__name__
        raise TypeError(
            f"StreamDataset: with open_shard, source must be a list of shards, got {kind}"
        )
    shards = list(source)
    if not shards:
        raise ValueError("StreamDataset: expected at least one shard, got none")
    return shards


def _require_picklable(name: str, value: Any) -> None:
    try:
        ForkingPickler.dumps(value)
    except Exception as error:
        raise TypeError(
            f"StreamDataset: {name} must pickle, because workers that spawn or forkserver starts get "
            f"a copy of it, but {type(value).__name__} doesn't: {error}; pass a function of a module "
            "instead of a lambda, an open file or an iterator, or let the DataLoader fork "
            '(multiprocessing_context="fork")'
        ) from error
