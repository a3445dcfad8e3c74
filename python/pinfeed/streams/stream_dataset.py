"""Samples of a stream, each for one worker of one rank."""

from __future__ import annotations

import copy
import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import IterableDataset, get_worker_info

from pinfeed.arguments import checked_integer
from pinfeed.ranks import checked_ranks, environment_ranks, group_ranks
from pinfeed.streams.passes import StreamPass, StreamState
from pinfeed.streams.shards import ShardReader, SharedCells, Start, StreamSource
from pinfeed.streams.share import Share, share_of
from pinfeed.streams.shuffle_buffer import ShuffleBuffer, permutation

_EVEN = ("none", "drop", "repeat")
_ON_ERROR = ("raise", "skip")

# Goes up with every change of who gets which sample when: an old state would continue otherwise.
_PLANNING = 2

# What a dataset shares with its workers: the epoch that set_epoch named, and that of a loaded state.
# Behind these, each worker counts what it skipped in a cell of its own, for two might count at once.
_NAMED, _OF_STATE, _SKIPPED, _CELLS = 0, 1, 2, 512
_UNNAMED = -1


class StreamDataset(IterableDataset[Any]):
    """Samples that come one after another: each for exactly one worker of one rank.

    Args:
        source: An iterable of samples; or a function that returns one, called anew for each pass;
            or, with ``open``, a list of shards.
        shuffle_buffer: How many samples each worker holds back to shuffle them: what comes next is
            drawn from among them. 0 keeps the order. Shards come in a new order too, and 1 shuffles
            only these.
        seed: The order follows from it and the epoch; the same on all ranks.
        open: Takes a shard (a path, a URL, whatever the list holds) and returns an iterable of its
            samples.
        even: ``"drop"`` and ``"repeat"`` give all ranks the same number of samples, and so of
            batches, worker by worker; ``"none"`` doesn't care.
        lengths: For ``even``, the number of samples in each shard, if that is known: 1-D integers.
        on_error: ``"raise"`` raises what a shard raises, with a note that names the shard;
            ``"skip"`` warns instead and leaves out the rest of the shard.
        rank: Which of the ranks this is; by default what ``torch.distributed`` says when a pass
            begins, or else ``RANK`` in the environment, or else 0.
        world_size: How many ranks there are; likewise, or else 1. Give both or neither.

    - Where there are as many shards as workers on all ranks together, whole shards are dealt out.
      Several times as many are better: some workers get a shard more than others.
    - With fewer shards, or without any, samples are dealt out in turn. Every worker then reads
      everything, and drops what is another's.
    - The list of shards, or the source, must be the same for all of them: sort what a directory
      lists, and don't pass a source that deals itself out to workers.
    - ``even`` needs ranks that read the same: whole shards are dealt out to the workers of a rank,
      and samples in turn to the ranks. Where a worker's last samples don't suffice for all ranks,
      they are left out or repeated: at most ``world_size - 1`` for each worker. All ranks need the
      same number of workers.
    - With ``lengths`` nobody reads what is another's: each worker gets a stretch of the stream, as long
      as that of the same worker of any other rank, and of the shard where it begins the part before
      that is skipped. At most ``world_size - 1`` samples in all are left out or repeated.

    Call `set_epoch` before each epoch, with persistent workers too. Order depends on the number of
    ranks and workers; which samples an epoch has doesn't, but for those few that ``even`` leaves out
    or repeats.

    In a torchdata ``StatefulDataLoader`` a stream goes on in the middle of an epoch: finished shards
    are not opened again, but what was read of the one under way is read again. With a buffer of n
    samples, reading starts about n × ln(n) samples earlier, to fill it with what it held.
    So the state is small: some numbers, and no samples.

    Raises:
        TypeError: An argument is of the wrong kind. In workers that don't start by fork, also:
            ``source`` or ``open`` can't be pickled.
        ValueError: An argument is out of range, there is no shard, or ``RANK`` and ``WORLD_SIZE``
            contradict each other.
        RuntimeError: ``source`` is an iterator, and this is a second pass, or one of several workers;
            or a state was loaded into the dataset, and workers of a DataLoader are to continue it.

    Example:
        >>> shards = [range(0, 4), range(10, 14), range(20, 24)]
        >>> stream = pinfeed.StreamDataset(shards, open=iter)
        >>> [batch.tolist() for batch in torch.utils.data.DataLoader(stream, batch_size=6)]
        [[0, 1, 2, 3, 10, 11], [12, 13, 20, 21, 22, 23]]

        What each of two ranks gets, the same number for both:

        >>> for rank in range(2):
        ...     list(pinfeed.StreamDataset(range(7), even="drop", rank=rank, world_size=2))
        [0, 2, 4]
        [1, 3, 5]
    """

    is_split_stream = True  # so that another one doesn't deal its samples out again

    def __init__(
        self,
        source: Any,
        shuffle_buffer: int = 0,
        seed: int = 0,
        *,
        open: Callable[[Any], Iterable[Any]] | None = None,
        even: str = "none",
        lengths: Any = None,
        on_error: str = "raise",
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.shuffle_buffer = checked_integer(
            shuffle_buffer, "StreamDataset: shuffle_buffer", 0, sys.maxsize
        )
        self.seed = checked_integer(seed, "StreamDataset: seed", 0)
        self.even = _choice(even, "even", _EVEN)
        self.on_error = _choice(on_error, "on_error", _ON_ERROR)
        if open is None and on_error == "skip":
            raise ValueError(
                "StreamDataset: on_error='skip' leaves out the rest of a shard, and this source has "
                "none; pass a list of shards, and open="
            )
        self._source = StreamSource(source, open)
        self._lengths = None if lengths is None else self._checked_lengths(lengths)
        self._given_ranks = checked_ranks(rank, world_size, "StreamDataset")
        self._found_ranks: tuple[int, int] | None = None  # by whoever pickled this
        self._cells = SharedCells([_UNNAMED, *[0] * (_CELLS - 1)])
        # What set_epoch named. A worker's first pass takes it from here, as it was when the worker
        # was made: its cell may be at a later epoch by then, for some workers and not for others.
        self._named = _UNNAMED
        self._is_used_worker = False  # whose next pass begins when the cell is up to date
        # By worker, for workers may be threads that share this object; None is no worker.
        # The pass that began last, and what of its state doesn't change:
        self._passes: dict[tuple[int, int] | None, tuple[StreamPass, dict[str, Any]]] = {}
        # What the next pass continues:
        self._loaded: dict[tuple[int, int] | None, StreamState] = {}

    @property
    def epoch(self) -> int:
        """The epoch that the next pass is of."""
        if loaded := self._loaded.get(_worker_key()):
            return loaded.epoch
        named = int(self._cells.values[_NAMED]) if self._is_used_worker else self._named
        return int(self._cells.values[_OF_STATE]) if named == _UNNAMED else named

    @property
    def skipped(self) -> int:
        """How many shards were cut short by errors so far, with ``on_error="skip"``.

        Counted in this process and all workers of its DataLoaders.
        """
        return int(self._cells.values[_SKIPPED:].sum())

    def set_epoch(self, epoch: int) -> None:
        """Goes to another epoch, which has another order.

        A loaded state of this epoch stays loaded, so that a training loop may call this after
        `load_state_dict` too. A pass that is under way stays in its epoch.

        Raises:
            TypeError: ``epoch`` is no integer.
            ValueError: ``epoch`` is negative.
        """
        epoch = checked_integer(epoch, "StreamDataset: epoch", 0, sys.maxsize)
        if epoch != self.epoch:
            self._loaded.pop(_worker_key(), None)
        self._named = epoch
        self._cells.values[_NAMED] = epoch

    def __iter__(self) -> Iterator[Any]:
        worker, workers = _worker()
        self._source.require_unread(workers)
        key = _worker_key()
        if key is not None and None in self._loaded:
            raise RuntimeError(
                "StreamDataset: the state was loaded into the dataset itself, and this is worker "
                f"{worker} of {workers}; have a torchdata StatefulDataLoader save and load the state, "
                "of each worker its own, or read without workers"
            )
        state = self._loaded.pop(key, None) or StreamState.begin(self.epoch)
        self._is_used_worker = key is not None
        share = self._share()
        counts_skips = share.groups > 1 or worker == 0  # others skip the same shards
        order = self._order(state.epoch, share)
        reader = functools.partial(self._reader, order, counts_skips)
        starts: Iterable[Start] = state.starts
        if self._lengths is not None:
            ends = np.cumsum(self._lengths[order]).tolist()
            starts = list(enumerate([0, *ends]))
        buffer = None
        if self.shuffle_buffer > 1:
            rank, world_size = self._ranks()
            part = worker * world_size + rank, workers * world_size
            buffer = ShuffleBuffer(self.shuffle_buffer, self.seed, (state.epoch, 1, *part))
        stream_pass = StreamPass(reader, share, buffer, state.yielded, starts, state.arrived)
        self._passes[key] = stream_pass, {"epoch": state.epoch, **self._identity()}
        return stream_pass.samples()

    def state_dict(self) -> dict[str, Any]:
        """Where the pass that began last is, and what it depends on.

        Returns:
            Ints, strings, None and short lists of ints: how many samples were ``yielded`` in which
            ``epoch``, where the shards start that may have to be read again, and the settings. Of
            this worker alone, so leave it to a ``StatefulDataLoader`` if there are several.
        """
        key = _worker_key()
        if key in self._passes:
            stream_pass, constant = self._passes[key]
            return {**stream_pass.state(), **constant}
        state = self._loaded.get(key) or StreamState.begin(self.epoch)
        return {**state._asdict(), **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where `state_dict` was taken: the next pass yields the samples that were left.

        Passes after that are of the epoch that `set_epoch` named, or if nobody called it, of the
        state's.

        Raises:
            TypeError: ``state`` is no dict, or a value is of the wrong kind.
            ValueError: The state is of another stream, another rank or another worker, or has other
                settings; or it isn't complete.
        """
        share = self._share()
        key = _worker_key()
        self._loaded[key] = StreamState.loaded(
            state,
            self._identity(),
            shards=len(share.of(range(self._source.shards))),
            most=None if share.stretch is None else share.stretch[1],
        )
        self._passes.pop(key, None)
        self._cells.values[_OF_STATE] = self._loaded[key].epoch

    def _identity(self) -> dict[str, Any]:
        """What two streams must have in common for one to continue the other."""
        rank, world_size = self._ranks()
        worker, workers = _worker()
        # Of shards whose lengths are known another part is due to a worker than of others.
        sizes = {
            "shards": self._source.shards,
            "shard_names": self._source.shard_names,
            "samples": self._samples,
        }
        return {
            **(sizes if self._source.has_shards else {"samples": self._source.size}),
            "shuffle_buffer": self.shuffle_buffer,
            "seed": self.seed,
            "even": self.even,
            "rank": rank,
            "world_size": world_size,
            "worker": worker,
            "workers": workers,
            "planning": _PLANNING,
        }

    def _ranks(self) -> tuple[int, int]:
        return (
            self._given_ranks
            or group_ranks()
            or self._found_ranks
            or environment_ranks("StreamDataset")
        )

    @property
    def _samples(self) -> int | None:
        """The number of samples in all shards, if that is known."""
        return None if self._lengths is None else int(self._lengths.sum())

    def _checked_lengths(self, lengths: Any) -> npt.NDArray[np.int64]:
        expected = "StreamDataset: lengths must be 1-D integers, one for each shard"
        if not self._source.has_shards or self.even == "none" or self.on_error == "skip":
            raise ValueError(
                "StreamDataset: lengths are for shards (open=), for even='drop' or 'repeat', and for "
                "on_error='raise' (of a shard that is cut short the length isn't known)"
            )
        array = np.asarray(lengths)
        if array.dtype.kind not in "iu":
            raise TypeError(f"{expected}, got dtype {array.dtype}")
        if array.shape != (self._source.shards,):
            raise ValueError(
                f"{expected}, got shape {array.shape} for {self._source.shards} shards"
            )
        if array.min() < 0:
            raise ValueError(f"{expected}, at least 0, got {array.min()}")
        return array.astype(np.int64)

    def _share(self) -> Share:
        shards = self._source.shards
        return share_of(shards, *self._ranks(), *_worker(), self.even, self._samples)

    def _order(self, epoch: int, share: Share) -> list[int]:
        shards = range(self._source.shards)
        if self.shuffle_buffer == 0:
            return list(share.of(shards))
        return share.of(permutation(len(shards), self.seed, (epoch, 0)).tolist())

    def _reader(
        self,
        order: list[int],
        counts_skips: bool,
        starts: Iterable[Start],
        first_needed: Callable[[], int],
    ) -> ShardReader:
        def on_skip(where: str) -> None:
            if counts_skips:
                cell = _SKIPPED + _worker()[0] % (_CELLS - _SKIPPED)
                self._cells.values[cell] += 1
                warnings.warn(f"StreamDataset: skipped the rest of {where}", stacklevel=2)

        return ShardReader(
            order,
            self._source.samples,
            self._source.name,
            starts,
            on_skip if self.on_error == "skip" else None,
            first_needed,
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_passes": {},
            "_cells": copy.copy(self._cells),  # which a copy shares only if it is a worker's
            "_found_ranks": group_ranks() or self._found_ranks,
        }

    def __repr__(self) -> str:
        return (
            f"StreamDataset({self._source!r}, shuffle_buffer={self.shuffle_buffer}, seed={self.seed}, "
            f"even={self.even!r}, on_error={self.on_error!r}, epoch={self.epoch})"
        )


def _worker_key() -> tuple[int, int] | None:
    """Which worker of a DataLoader this process or thread is, and of how many; None if it is none."""
    info = get_worker_info()
    return None if info is None else (info.id, info.num_workers)


def _worker() -> tuple[int, int]:
    """The same, but the only one of one if it is none."""
    return _worker_key() or (0, 1)


def _choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        expected = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"StreamDataset: {name} must be {expected}, got {value!r}")
    return value
