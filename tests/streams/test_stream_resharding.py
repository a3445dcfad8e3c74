"""A stream's state moves to other rank and worker counts: each remaining sample comes once."""

import copy
import itertools
import json
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from messages import check
from pinfeed import DeviceLoader, StreamDataset
from pinfeed.packing import PackedStream
from pinfeed.samplers.epoch_clock import EpochClock
from streams import as_worker, numbered

SIZES = st.lists(st.integers(0, 6), min_size=9, max_size=25)
WORLDS, WORKERS = st.integers(1, 3), st.integers(0, 3)


class Job:
    """All ranks of a job: each has a stream that its workers share."""

    def __init__(self, make, world_size, workers, states=None):
        self.workers = workers
        self.readers = [*itertools.product(range(world_size), range(max(workers, 1)))]
        self.streams = [make(rank=rank, world_size=world_size) for rank in range(world_size)]
        self.passes = 0
        if states is not None:
            for stream in self.streams:
                stream.load_state_dict(json.loads(json.dumps(states)))

    def read(self, counts):
        """Returns this number of samples per reader in one pass, and the states afterwards."""
        samples, states = [], []
        self.passes += 1
        for (rank, worker), count in zip(self.readers, counts, strict=True):
            with as_worker(worker, self.workers, 100 * self.passes):
                samples.append(list(itertools.islice(iter(self.streams[rank]), count)))
                states.append(self.streams[rank].state_dict())
        return samples, states


@given(
    SIZES,
    st.lists(st.tuples(WORLDS, WORKERS), min_size=2, max_size=4),
    st.sampled_from(["keep", "drop", "repeat"]),
    st.sampled_from([0, 1]),
    st.integers(0, 2),
    st.data(),
)
def test_each_remaining_sample_comes_once(sizes, jobs, uneven, buffer, epoch, data):
    shards = numbered(sizes)

    def make(**ranks):
        return StreamDataset(shards, buffer, open_shard=iter, uneven=uneven, **ranks)

    seen, states = Counter(), None
    for number, (world_size, workers) in enumerate(jobs):
        job = Job(make, world_size, workers, states)
        if states is None:
            for stream in job.streams:
                stream.set_epoch(epoch)
        is_last = number == len(jobs) - 1
        counts = [None if is_last else data.draw(st.integers(0, 12)) for _ in job.readers]
        if uneven != "keep":  # ranks have equal progress
            counts = [counts[worker] for _, worker in job.readers]
        samples, states = job.read(counts)
        seen.update(itertools.chain(*samples))
        if uneven != "keep":
            states = states[: max(workers, 1)]  # one rank's state is enough
    assert set(seen) <= set(range(sum(sizes)))
    short = sum((world_size - 1) * max(workers, 1) for world_size, workers in jobs)
    if uneven == "drop":
        assert set(seen.values()) <= {1}
        assert sum(sizes) - len(seen) <= short
    else:
        assert len(seen) == sum(sizes)
        assert seen.total() - len(seen) <= (0 if uneven == "keep" else short)
    # The next epoch is unaffected.
    fresh = Job(make, world_size, workers)
    for stream in fresh.streams:
        stream.set_epoch(epoch + 1)
    everything = [None] * len(job.readers)
    assert job.read(everything)[0] == fresh.read(everything)[0]


def test_finished_shards_are_not_opened_again():
    opened = []

    def open_shard(number):
        opened.append(number)
        return range(10 * number, 10 * number + 10)

    def make(**ranks):
        return StreamDataset(range(12), open_shard=open_shard, uneven="keep", **ranks)

    _, states = Job(make, 2, 2).read([13, 11, 4, 0])
    opened.clear()
    samples, _ = Job(make, 3, 0, states).read([None] * 3)
    # Shards 0 and 2 are finished, 4, 6 and 1 were read in part, and 3 was not started.
    assert samples[0][:7] == [*range(14, 20), 50]
    assert sorted(opened) == [1, *range(3, 12)]
    assert len(list(itertools.chain(*samples))) == 120 - 28


# Loaders.


def open_range(number):
    return range(9 * number, 9 * number + 9)


def loader_of(rank, world_size, size, workers, kind=StatefulDataLoader, **options):
    stream = StreamDataset(
        range(13), open_shard=open_range, rank=rank, world_size=world_size, **options
    )
    loader = kind(stream, size, num_workers=workers)
    return DeviceLoader(loader, "cpu") if kind is StatefulDataLoader else loader


@pytest.mark.parametrize(
    ("uneven", "before", "after", "size", "kind"),
    [
        *((uneven, *row) for uneven in ("keep", "repeat") for row in (
            ((2, 0), (1, 0), 4, StatefulDataLoader),
            ((2, 0), (3, 0), 8, StatefulDataLoader),
            ((2, 2), (1, 0), 4, StatefulDataLoader),
            ((2, 2), (2, 3), 4, StatefulDataLoader),
        )),
        ("keep", (2, 0), (3, 2), 2, DataLoader),
        # For one rank, the state itself.
        ("keep", (1, 0), (1, 2), 4, StatefulDataLoader),
        ("keep", (1, 2), (1, 1), 4, StatefulDataLoader),
        ("keep", (1, 1), (1, 0), 4, StatefulDataLoader),
    ],
)  # fmt: skip
def test_loaders_resume_with_other_rank_and_worker_counts(uneven, before, after, size, kind):
    (ranks, workers), (ranks_after, workers_after) = before, after
    seen, states = [], []
    for rank in range(ranks):
        loader = loader_of(rank, ranks, 4, workers, uneven=uneven)
        loop = iter(loader)
        seen += [next(loop) for _ in range(5)]
        states.append(loader.state_dict())
        loop.close()
    states = json.loads(json.dumps(states if ranks > 1 else states[0]))
    resumed = []
    for rank in range(ranks_after):
        loader, fresh = (
            loader_of(rank, ranks_after, size, workers_after, kind, uneven=uneven) for _ in range(2)
        )
        (loader if kind is StatefulDataLoader else loader.dataset).load_state_dict(states)
        assert loader.dataset.epoch == 0
        loader.dataset.set_epoch(0)  # like training loops
        seen += list(loader)
        resumed.append((loader, fresh))
    times = Counter(torch.cat(seen).tolist())
    assert set(times) == set(range(13 * 9))
    assert times.total() - 13 * 9 <= (0 if uneven == "keep" else 2 * 2 + 3 * 3)
    for loader, fresh in [] if workers_after else resumed:  # starting workers is slow
        fresh.dataset.set_epoch(1)
        assert loader.dataset.epoch == 1
        assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in fresh]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("uneven", ["keep", "drop"])
def test_the_list_of_all_states_on_equal_rank_counts(uneven, workers):
    """Each rank picks its own state, which is not valid for other ranks."""
    options = {"uneven": uneven, "shuffle_buffer": 20}
    loaders = [loader_of(rank, 2, 4, workers, **options) for rank in range(2)]
    whole = [[batch.tolist() for batch in loader] for loader in loaders]
    loaders = [loader_of(rank, 2, 4, workers, **options) for rank in range(2)]
    loops = [iter(loader) for loader in loaders]
    seen = [[next(loop).tolist() for _ in range(5)] for loop in loops]
    states = json.loads(json.dumps([loader.state_dict() for loader in loaders]))
    for rank in range(2):
        resumed = loader_of(rank, 2, 4, workers, **options)
        resumed.load_state_dict(states if uneven == "keep" else states[:1])
        assert seen[rank] + [batch.tolist() for batch in resumed] == whole[rank]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ((2, 2), (2, 3), "stream: workers is 2 in the state and 3 here; create"),
        ((1, 0), (1, 1), "stream: workers is 0 in the state and 1 here; create"),
        ((2, 1), (3, 2), "rank is 0 in the state and 2 here, world_size is 2 in the state and 3 here, workers is 1"),
    ],
)  # fmt: skip
def test_a_shuffled_stream_names_the_workers_of_its_loader(before, after, message):
    (ranks, workers), (ranks_after, workers_after) = before, after
    options = {"uneven": "keep", "shuffle_buffer": 9}
    states = []
    for rank in range(ranks):
        loader = loader_of(rank, ranks, 4, workers, **options)
        next(iter(loader))
        states.append(loader.state_dict())
    other = loader_of(ranks_after - 1, ranks_after, 4, workers_after, **options)
    for loaded in [states, states[0]] if ranks == 1 else [states]:
        check(lambda: other.load_state_dict(loaded), ValueError, message)  # noqa: B023


def test_loaders_that_have_ended():
    states = []
    for rank in range(2):
        loader = loader_of(rank, 2, 4, 0, uneven="keep")
        list(loader)
        states.append(loader.state_dict())
    moved = loader_of(0, 1, 4, 0, uneven="keep")
    moved.load_state_dict(states)
    assert moved.dataset.epoch == 1
    assert sum(map(len, moved)) == 13 * 9


def test_states_that_cannot_move():
    def make(world_size=1, rank=0, **options):
        options = {"source": range(6), "open_shard": open_range, "uneven": "keep"} | options
        return StreamDataset(**options, rank=rank, world_size=world_size)

    def states_of(world_size, **options):
        streams = [make(world_size, rank, **options) for rank in range(world_size)]
        for stream in streams:
            list(itertools.islice(stream, 5))
        return [stream.state_dict() for stream in streams]

    def refuse(stream, states, *words, error=ValueError):
        check(lambda: stream.load_state_dict(states), error, *words)

    sizes = "the state is from another stream: world_size is {} in the state and 3 here".format
    refuse(make(3, shuffle_buffer=9), states_of(2, shuffle_buffer=9), sizes(2))
    refuse(make(3), states_of(7), sizes(7))  # more readers than shards
    states = states_of(2)
    words = "the states of all 2 ranks, with 1 workers each", "rank 0, worker 0 is missing"
    for one in (states[1], states[1:]):
        refuse(make(3), one, *words)
    make(3).load_state_dict(states)
    refuse(make(3, source=range(7)), states, "another stream: shards is 6 in the state and 7 here")
    states = states_of(2, uneven="drop")
    states[1]["yielded"] += 1
    message = "rank 0 has yielded 5 samples of epoch 0, rank 1 has yielded 6 samples"
    refuse(make(3, uneven="drop"), states, "same step, but ", message)
    loader = StatefulDataLoader(make(), 4, num_workers=1, snapshot_every_n_steps=4)
    list(itertools.islice(loader, 3))
    with pytest.raises(ValueError, match=r"yielded \d more; save with snapshot_every_n_steps=1"):
        make(3).load_state_dict([loader.state_dict()])
    packed = PackedStream(make(), seq_length=4, key=0)
    refuse(make(3), [packed.state_dict()], "state must be a dict, got list", error=TypeError)


def test_a_shard_that_became_shorter_than_the_position():
    sizes = [9, 9]

    def make(**ranks):
        return StreamDataset(range(2), open_shard=lambda n: range(sizes[n]), uneven="keep", **ranks)

    _, states = Job(make, 2, 0).read([6, 5])
    sizes[1] = 4
    moved = make()
    moved.load_state_dict(states)
    with pytest.raises(ValueError, match=r"shard 1 of 2, 1 has 4 samples, but had 5"):
        list(moved)


def begin_as_worker(clock, worker, seed):
    with as_worker(worker, 2, seed):
        return clock.begin()


@pytest.mark.parametrize("copies", [False, True])  # processes, or threads that share the clock
def test_a_state_loaded_for_all_workers_applies_to_one_pass(copies):
    clock = EpochClock(is_shared=True)
    assert [begin_as_worker(clock, worker, 5) for worker in range(2)] == [(0, None)] * 2
    for epoch, seed in ((4, 10), (2, 20)):
        clock.load(epoch, "own", "anywhere")
        assert (clock.next, clock.loaded) == (epoch, "own")
        clock.set(epoch)
        clocks = [copy.copy(clock) for _ in range(2)] if copies else [clock] * 2
        for one in clocks:
            one._passes = clock._passes  # as in a worker
        for worker, one in enumerate(clocks):
            assert begin_as_worker(one, worker, seed) == (epoch, "anywhere")
        assert (clock.next, clock.loaded) == (epoch + 1, None)
        for worker, one in enumerate(clocks):
            assert begin_as_worker(one, worker, seed) == (epoch + 1, None)
    clock.load(7, "own", "anywhere")
    assert clock.begin() == (7, "own")
    assert begin_as_worker(clock, 0, 30) == (8, None)
    clock.load(7, "own", "anywhere")
    clock.set(3)
    assert begin_as_worker(clock, 1, 40) == (3, None)
    clock.load(7, "own", "anywhere")
    clock.load(6)
    assert begin_as_worker(clock, 1, 50) == (7, None)
