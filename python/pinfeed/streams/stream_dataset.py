"""`StreamDataset`: an iterable dataset sharded over ranks and workers."""

from __future__ import annotations

import copy
import functools
import multiprocessing.context
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from torch.utils.data import IterableDataset

from pinfeed.arguments import (
    checked_choice,
    checked_integer,
    is_finished,
    require_state,
    states_within,
    with_hints,
    workers_of,
)
from pinfeed.memory.shared_file import SharedIntegers
from pinfeed.ranks import Uneven, checked_ranks, environment_ranks, group_ranks, prepared_loader
from pinfeed.samplers.epoch_clock import MAX_EPOCH, EpochClock, worker_key
from pinfeed.samplers.order_sampler import ROUNDS, permutation, random_keys
from pinfeed.streams.passes import ShuffleBuffer, StreamPass, StreamState, remaining_shards
from pinfeed.streams.resharding import RANK_AND_WORKER, CombinedState, matching_state
from pinfeed.streams.shards import ShardReader, Start, StreamSource
from pinfeed.streams.share import Share, worker_share

# Increased whenever the same settings give a worker other samples, so that older states are rejected.
_PLANNING = 4

_NEEDED = {"starts", "yielded", "left"}  # keys of a stream's state

# The integers that workers share: the number of skipped shards, and whether one has warned of uneven ranks.
_SKIPPED, _WARNED = 0, 1


class StreamDataset(IterableDataset[Any]):
    """Iterable dataset that shards samples over ranks and workers.

    Args:
        source: A list of shards, with ``open_shard``; any iterable of samples; a function that returns an
            iterable, called for each pass; or a Hugging Face ``IterableDataset``, which has its own shards.
        shuffle_buffer: Size of each worker's shuffle buffer, in samples. 0 shuffles nothing; 1 shuffles
            only the shards; larger ones shuffle the shards, and the samples within the buffer.
        seed: Seed of the order; the epoch changes the order too. The same on all ranks. None: 0.
        open_shard: Function that takes a shard (an item of the list, such as a path or a URL) and
            returns an iterable of its samples.
        uneven: How to equalize ranks. ``"drop"`` and ``"repeat"`` give all ranks the same number of
            samples and batches: they drop or repeat at most ``world_size - 1`` samples per worker.
            ``"keep"`` yields each sample once, so ranks differ. None: ``"keep"``, but the first pass
            warns if there are several ranks.
        on_error: How to handle errors of a shard. ``"raise"`` raises them, with a note that names the
            shard; ``"skip"`` warns and skips the rest of the shard.
        rank: Data-parallel rank of this process. None: taken from ``torch.distributed`` when a pass
            begins, or else from ``RANK`` in the environment, or else 0.
        world_size: Number of data-parallel ranks. None: as for ``rank``, or else 1. Pass both or
            neither.

    **Passes.** Each loop over the stream is a pass, and starts the next epoch unless `set_epoch` or
    `load_state_dict` sets it. All ranks must make the same number of passes. A `Collate` with a seed
    draws for the epoch of the pass.

    **Shards.** If there is at least one shard for each worker of all ranks, each worker reads whole shards.
    Provide several per worker, because some workers read one shard more than others. With fewer shards or
    none, every worker reads the whole source, and each of n workers yields every n-th sample. With
    ``uneven="drop"`` or ``"repeat"``, every rank reads all shards, divides them among its own workers, and,
    as one of n ranks, yields every n-th sample. All ranks need the same number of workers.

    All workers must see the same shards in the same order, so sort directory listings. The order of
    samples depends on the rank and worker counts.

    **A source that shards by itself** would be sharded twice, and lose samples. If yours shards over
    ranks, as after ``split_dataset_by_node``, pass ``rank=0, world_size=1``. A torch ``IterableDataset``
    can shard over workers, so with several workers it raises TypeError.

    **Resuming.** torchdata's ``StatefulDataLoader`` resumes a stream within an epoch. Finished shards are
    not opened again; the current shard is read again from its beginning. To refill a shuffle buffer of n
    samples, about n × ln(n) earlier samples are read again, but not yielded. Without a buffer, the rank
    and worker counts can change: see `load_state_dict`.

    Raises:
        TypeError: If an argument has the wrong type. When a pass begins: if the source may shard by
            itself, or ``source`` or ``open_shard`` can't be pickled for workers that are not forked.
        ValueError: If an argument is out of range, the list of shards is empty, ``seed`` has no
            effect because nothing is shuffled, or ``RANK`` and ``WORLD_SIZE`` contradict each other.
        RuntimeError: When a pass begins: if ``source`` is an iterator and this is the second pass or there
            are several workers; if a worker's state was loaded in the main process; or if accelerate's
            ``prepare`` shards a stream that is already sharded.

    Example:
        >>> shards = [range(0, 4), range(10, 14), range(20, 24)]
        >>> stream = pinfeed.StreamDataset(shards, open_shard=iter)
        >>> [batch.tolist() for batch in torch.utils.data.DataLoader(stream, batch_size=6)]
        [[0, 1, 2, 3, 10, 11], [12, 13, 20, 21, 22, 23]]

        The samples of two ranks, the same number for both:

        >>> for rank in range(2):
        ...     list(pinfeed.StreamDataset(range(7), uneven="drop", rank=rank, world_size=2))
        [0, 2, 4]
        [1, 3, 5]
    """

    @with_hints(
        shuffle="shuffle_buffer=10_000 shuffles within 10,000 samples",
        buffer_size="pass shuffle_buffer",
        batch_size="pass it to the DataLoader",
        open="pass open_shard",
    )
    def __init__(
        self,
        source: Any,
        shuffle_buffer: int = 0,
        seed: int | None = None,
        *,
        open_shard: Callable[[Any], Iterable[Any]] | None = None,
        uneven: Literal["repeat", "drop", "keep"] | None = None,
        on_error: str = "raise",
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if callable(shuffle_buffer):
            raise TypeError(
                "StreamDataset: shuffle_buffer must be an integer, got a function; write open_shard=..."
            )
        self.shuffle_buffer = checked_integer(
            shuffle_buffer, "StreamDataset: shuffle_buffer", 0, sys.maxsize
        )
        self.seed = checked_integer(0 if seed is None else seed, "StreamDataset: seed", 0)
        checked_choice(uneven, ("repeat", "drop", "keep", None), "StreamDataset: uneven")
        self.uneven: Uneven = "keep" if uneven is None else uneven
        self.on_error = checked_choice(on_error, ("raise", "skip"), "StreamDataset: on_error")
        self._warns = uneven is None
        if open_shard is None and on_error == "skip":
            raise ValueError(
                f"StreamDataset: on_error='skip' needs open_shard, got a {type(source).__name__} "
                "without it; pass a list of shards, and open_shard="
            )
        self._source = StreamSource(source, open_shard)
        if seed is not None:
            self._require_shuffling()
        self._given_ranks = checked_ranks(rank, world_size, "StreamDataset")
        self._detected_ranks: tuple[int, int] | None = None  # in the process that pickled this
        self._is_sharded = True
        self._integers = SharedIntegers([0, 0])
        self._clock = EpochClock(is_shared=True)
        # The last pass and the constant part of its state, by worker (None: no worker), because worker
        # threads share this object.
        self._passes: dict[tuple[int, int] | None, tuple[StreamPass, dict[str, Any]]] = {}

    def _require_shuffling(self) -> None:
        """Raises ValueError for a seed without effect; warns if that is because there is one shard."""
        shards = self._source.shards
        if self.shuffle_buffer > 1 or (self.shuffle_buffer == 1 and shards > 1):
            return
        hint = "shuffle_buffer=1000 shuffles within 1,000 samples"
        if shards > 1:
            hint = "shuffle_buffer=1 shuffles the shards, and a larger one their samples too"
        message = (
            f"StreamDataset: seed must be None where nothing is shuffled, got {self.seed} with "
            f"shuffle_buffer={self.shuffle_buffer} and {shards} shard{'s' * (shards > 1)}; {hint}"
        )
        if self.shuffle_buffer == 0 or not self._source.has_shards:
            raise ValueError(message)
        warnings.warn(message, stacklevel=4)  # beyond with_hints

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._clock.next

    @property
    def skipped(self) -> int:
        """The number of shards whose rest ``on_error="skip"`` has skipped, in all workers."""
        return int(self._integers.values[_SKIPPED])

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass.

        A loaded state of the same epoch stays loaded, so a training loop may call this after
        `load_state_dict`. A pass that has begun stays in its epoch.

        Raises:
            TypeError: If ``epoch`` is not an integer.
            ValueError: If ``epoch`` is negative.
        """
        self._clock.set(checked_integer(epoch, "StreamDataset: epoch", 0, MAX_EPOCH))

    def of_all_ranks(self) -> StreamDataset:
        """Returns this stream without sharding over ranks. Both streams share one epoch count."""
        whole: StreamDataset = object.__new__(type(self))
        whole.__dict__ |= self.__dict__ | {"uneven": "keep", "_is_sharded": False, "_passes": {}}
        return whole

    def __iter__(self) -> Iterator[Any]:
        worker, workers = _worker()
        self.require_single_sharding()
        self._warn_of_uneven_ranks()
        self._source.require_readable(workers, self._clock.has_begun)
        key = worker_key()
        if key is not None and self._clock.is_loaded_into_main:
            raise RuntimeError(
                "StreamDataset: a state loaded into the dataset itself works only without workers, and "
                f"this is worker {worker} of {workers}; save and load the state with a torchdata "
                "StatefulDataLoader, which has one for each worker, or pass num_workers=0"
            )
        epoch, loaded = self._clock.begin()
        state = loaded or StreamState.begin(epoch)
        share = self._share()
        reader = functools.partial(self._reader, epoch, share, state.left)
        stream_pass = StreamPass(reader, share, self._buffers(epoch), state)
        self._passes[key] = stream_pass, self._identity()
        return stream_pass.samples()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the last pass, and the settings that it depends on.

        Returns:
            Ints, strings, None and short lists of ints: the ``epoch``, the number of samples
            ``yielded``, the ``starts`` of shards that may be read again, the shards still ``left``
            after resuming with other rank or worker counts, and the settings. It is the state of this
            worker only; a ``StatefulDataLoader`` saves one per worker. With ``uneven="drop"`` or
            ``"repeat"`` it is the state of all ranks.
        """
        key = worker_key()
        if key in self._passes:
            stream_pass, identity = self._passes[key]
            return stream_pass.state()._asdict() | identity
        state = self._clock.loaded or StreamState.begin(self.epoch)
        return state._asdict() | self._identity()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a saved position: the next pass yields the remaining samples.

        The pass after that starts the next epoch, unless `set_epoch` sets it.

        The rank and worker counts may change if ``shuffle_buffer`` is at most 1, and the source had at
        least one shard for each worker of all ranks, or of one rank with ``uneven="drop"`` or
        ``"repeat"``. Load the states of all ranks into the stream itself, on each rank, before its
        workers start. The rest is sharded again: finished shards are not opened, and partly read shards
        continue at their position.

        Args:
            state: State of this worker; or a list of the states of all ranks. States of
                ``StatefulDataLoader`` hold the states of all workers. With ``uneven="drop"`` or
                ``"repeat"``, the states of one rank suffice.

        Raises:
            TypeError: If ``state`` is not a dict, or a value has the wrong type.
            ValueError: If the state is incomplete or from a stream with other shards or settings, if it is
                from another rank or worker and can't be resharded, or if ranks are not at the same step.
        """
        identity, shards = self._identity(), self._source.shards
        if self.uneven != "keep":
            del identity["rank"]
        states = [*states_within(state, _NEEDED, "StreamDataset")]
        identity_of_worker = {key: identity[key] for key in RANK_AND_WORKER if key in identity}
        own_state = next((one for one in states if identity_of_worker.items() <= one.items()), None)
        combined = CombinedState(states, shards, self.uneven) if states else None
        can_reshard = combined is not None and combined.can_reshard and self.shuffle_buffer <= 1
        loaded = for_workers = None
        if own_state is not None or not can_reshard:
            selected = own_state or next(iter(states), state)
            loaded = StreamState.loaded(selected, identity, shards, self._share())
        if combined is not None and can_reshard and (own_state is None or combined.missing is None):
            others = {key: value for key, value in identity.items() if key not in RANK_AND_WORKER}
            for_workers = combined.remaining(others)
        start = loaded or for_workers
        assert start is not None
        if states[0] is not state and is_finished(state):
            self._clock.load(start.epoch)
        else:
            self._clock.load(start.epoch, start, for_workers)
        self._passes.pop(worker_key(), None)

    def state_of_this_rank(self, states: list[Any], workers: int) -> Any:
        """Selects the loader's state for this rank and number of workers, if the states can't be resharded.

        Otherwise returns the list; raises ValueError if it is from other rank or worker counts.
        """
        inner = [*states_within(states, _NEEDED, "StreamDataset")]
        is_whole = bool(inner) and self.shuffle_buffer <= 1
        if is_whole and CombinedState(inner, self._source.shards, self.uneven).can_reshard:
            return states
        selected = matching_state(states, workers, self.rank_identity, _NEEDED, "StreamDataset")
        if selected is states and inner and workers > 0:
            same_rank = next(
                (state for state in inner if self.rank_identity.items() <= state.items()), inner[0]
            )
            loaders = workers_of(states[0])
            inner_state = same_rank if loaders is None else same_rank | {"workers": loaders}
            expected = self._identity() | self.rank_identity | {"workers": workers}
            if self.uneven != "keep":
                del expected["rank"]
            require_state(inner_state, _NEEDED, expected, "StreamDataset", "stream")
        return selected

    @property
    def rank_identity(self) -> dict[str, int]:
        """The part of a state that must match this rank."""
        rank, world_size = self._sharding_ranks()
        return {"world_size": world_size} | ({"rank": rank} if self.uneven == "keep" else {})

    def load_worker_state(self, state: Any) -> None:
        """Loads the state of this worker, without resharding."""
        loaded = StreamState.loaded(state, self._identity(), self._source.shards, self._share())
        self._clock.load(loaded.epoch, loaded)
        self._passes.pop(worker_key(), None)

    def require_single_sharding(self) -> None:
        """Raises RuntimeError if accelerate shards this already sharded stream."""
        _, world_size = self.ranks()
        if world_size == 1:
            return
        prepared = getattr(prepared_loader(), "dataset", None)
        prepared = getattr(prepared, "dataset", prepared)  # in accelerate's IterableDatasetShard
        prepared = getattr(prepared, "stream", prepared)  # in a PackedStream
        if prepared is self:
            raise RuntimeError(
                "StreamDataset: accelerator.prepare, which HF Trainer calls too, shards samples over "
                f"processes, and this stream is sharded over {world_size} ranks already; leave the "
                "DataLoader out of prepare: pinfeed.DeviceLoader(loader, accelerator.device), or pass "
                "rank=0, world_size=1 to the stream"
            )

    def _warn_of_uneven_ranks(self) -> None:
        """Warns once that ranks may differ in their number of samples, if ``uneven`` was not passed."""
        rank, world_size = self.ranks()
        if self._warns and world_size > 1 and self._integers.compare_exchange(_WARNED, 0, 1):
            warnings.warn(
                f"StreamDataset: this is rank {rank} of {world_size}, and ranks may get different numbers of "
                "samples and batches; DDP waits forever for a rank that has finished. Pass uneven='drop' or "
                "uneven='repeat' to train, or uneven='keep' if ranks don't wait for each other",
                stacklevel=3,
            )

    def _identity(self) -> dict[str, Any]:
        """Returns the part of the state that must be the same when it is loaded."""
        rank, world_size = self._sharding_ranks()
        worker, workers = _worker()
        sizes = {"shards": self._source.shards, "shard_names": self._source.shard_names}
        return {
            **(sizes if self._source.has_shards else {"samples": self._source.size}),
            "shuffle_buffer": self.shuffle_buffer,
            "seed": self.seed,
            "uneven": self.uneven,
            "rank": rank,
            "world_size": world_size,
            "worker": worker,
            "workers": workers,
            "planning": _PLANNING,
        }

    def ranks(self) -> tuple[int, int]:
        """Returns rank and world size."""
        return (
            self._given_ranks
            or group_ranks()
            or self._detected_ranks
            or environment_ranks("StreamDataset")
        )

    def _sharding_ranks(self) -> tuple[int, int]:
        return self.ranks() if self._is_sharded else (0, 1)

    def _share(self) -> Share:
        shards = self._source.shards
        return worker_share(shards, *self._sharding_ranks(), *_worker(), self.uneven)

    def _order(self, epoch: int) -> list[int]:
        count = self._source.shards
        if self.shuffle_buffer == 0:
            return [*range(count)]
        return permutation(count, random_keys(self.seed, (epoch, 0), ROUNDS)).tolist()

    def _buffers(self, epoch: int) -> list[ShuffleBuffer]:
        """Returns this worker's buffer, and unless ``uneven="keep"`` the buffers of other ranks."""
        if self.shuffle_buffer <= 1:
            return []
        (rank, world_size), (worker, workers) = self._sharding_ranks(), _worker()
        ranks = (
            [rank] if self.uneven == "keep" else [rank, *range(rank), *range(rank + 1, world_size)]
        )
        parts = [(worker * world_size + other, workers * world_size) for other in ranks]
        return [ShuffleBuffer(self.shuffle_buffer, self.seed, (epoch, 1, *part)) for part in parts]

    def _reader(
        self,
        epoch: int,
        share: Share,
        left: list[Start],
        starts: Iterable[Start],
        first_needed: Callable[[], int],
    ) -> ShardReader:
        worker, workers = _worker()
        order = self._order(epoch)
        own_shards = share.of(remaining_shards(left, len(order)))

        def on_skip(where: str) -> None:
            if share.groups > 1 or worker == 0:  # workers of a single group skip the same shards
                self._integers.increment(_SKIPPED)
                warnings.warn(f"StreamDataset: skipped the rest of {where}", stacklevel=2)

        return ShardReader(
            [order[index] for index, _ in own_shards],
            functools.partial(
                self._source.samples,
                workers=workers,
                ranks=self.ranks()[1],
                are_ranks_given=self._given_ranks is not None,
                epoch=epoch,
            ),
            self._source.name,
            starts,
            on_skip if self.on_error == "skip" else None,
            first_needed,
            {order[index]: read for index, read in own_shards if read},
        )

    def __getstate__(self) -> dict[str, Any]:
        if multiprocessing.context.get_spawning_popen() is not None:
            self.require_single_sharding()  # a worker that isn't forked can't check it
        return self.__dict__ | {
            "_passes": {},
            # Shared with copies in workers, but not with other copies.
            "_integers": copy.copy(self._integers),
            "_clock": copy.copy(self._clock),
            "_detected_ranks": group_ranks() or self._detected_ranks,
        }

    def __repr__(self) -> str:
        return (
            f"StreamDataset({self._source!r}, shuffle_buffer={self.shuffle_buffer}, seed={self.seed}, "
            f"uneven={self.uneven!r}, on_error={self.on_error!r}, epoch={self.epoch})"
        )


def _worker() -> tuple[int, int]:
    """Returns this worker and the number of workers; outside of workers, (0, 1)."""
    return worker_key() or (0, 1)
