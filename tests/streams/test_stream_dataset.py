"""StreamDataset: each sample for one worker of one rank, in an order that follows from the seed."""

import copy
import gc
import itertools
import sys
import warnings
import weakref

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from pinfeed import StreamDataset
from streams import expected_order, expected_parts, keep, numbered, parts_of, stream

SIZES = st.lists(st.integers(0, 6), min_size=1, max_size=12)
RANKS = st.integers(1, 4)
WORKERS = st.integers(1, 4)
BUFFERS = st.sampled_from([0, 1, 2, 3, 7, 100])
EVEN = st.sampled_from(["keep", "drop", "repeat"])


# Distribution over ranks and workers.


@given(SIZES, RANKS, WORKERS, EVEN)
@example([5, 3], 2, 2, "drop")  # as many shards as workers: each reads one
def test_shards_in_order(sizes, ranks, workers, uneven):
    shards = numbered(sizes)
    parts = parts_of(stream(shards, open_shard=iter, uneven=uneven), ranks, workers)
    assert parts == expected_parts(shards, ranks, workers, uneven)


@given(st.integers(0, 50), RANKS, WORKERS, EVEN)
def test_a_stream_in_order(size, ranks, workers, uneven):
    for source in (range(size), lambda: iter(range(size)), list(range(size))):
        parts = parts_of(stream(source, uneven=uneven), ranks, workers)
        assert parts == expected_parts([list(range(size))], ranks, workers, uneven)


@pytest.mark.parametrize(
    ("workers", "options", "opened"),
    [
        (3, {}, [0, 6, 1, 2, 3, 4, 5]),  # one per worker: each once, in turn
        (3, {"uneven": "drop"}, 2 * [0, 3, 6, 1, 4, 2, 5]),  # by one worker per rank
        (4, {}, 8 * [*range(7)]),  # fewer than workers: all read all
    ],
)
def test_opened_shards(workers, options, opened):
    result = []

    def open_shard(number):
        result.append(number)
        return range(10 * number, 10 * number + 10)

    parts = parts_of(stream(range(7), open_shard=open_shard, **options), 2, workers)
    assert sorted(result) == sorted(opened)
    assert sorted(itertools.chain(*parts.values())) == list(range(70))


# Order.


@given(st.integers(0, 300), st.integers(2, 50), st.integers(0, 2**70), st.integers(0, 3))
def test_the_order_follows_the_shuffle_buffer(count, size, seed, epoch):
    dataset = StreamDataset(range(count), size, seed)
    dataset.set_epoch(epoch)
    assert list(dataset) == expected_order(list(range(count)), size, seed, epoch)


def test_the_order_never_changes():
    """Saved states rely on it."""
    dataset = StreamDataset(range(20), 5, seed=1)
    dataset.set_epoch(2)
    order = [4, 3, 5, 0, 8, 9, 10, 7, 6, 1, 13, 15, 11, 17, 18, 2, 16, 12, 19, 14]
    assert list(dataset) == order
    shards = StreamDataset(range(12), 1, seed=1, open_shard=lambda shard: [shard])
    shards.set_epoch(2)
    assert list(shards) == [8, 2, 10, 11, 4, 0, 3, 7, 6, 9, 1, 5]


# Ranks.


def test_ranks_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert list(StreamDataset(range(7), uneven="keep")) == [1, 4]
    assert list(StreamDataset(range(7), uneven="keep", rank=0, world_size=2)) == [0, 2, 4, 6]


def warned(samples):
    """Returns the warnings while the samples are read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(samples)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("make", [StreamDataset, lambda *a, **o: copy.copy(StreamDataset(*a, **o))])
def test_ranks_with_unequal_batch_counts_warn_once(make):
    for source, options in (([[1, 2], [3]], {"open_shard": iter}), (range(3), {})):
        for rank in range(2):
            dataset = make(source, rank=rank, world_size=2, **options)
            (message,) = warned(dataset)
            assert f"this is rank {rank} of 2" in message
            assert warned(dataset) == []
        for uneven in ("drop", "repeat", "keep"):  # the suggested fix
            dataset = make(source, uneven=uneven, rank=0, world_size=2, **options)
            assert warned(dataset) == []
        assert warned(make(source, rank=0, world_size=1, **options)) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_of_the_workers_warns_about_ranks(method, capfd):
    dataset = StreamDataset(range(8), rank=0, world_size=2)
    options = {"num_workers": 2, "multiprocessing_context": method, "collate_fn": keep}
    loader = DataLoader(dataset, worker_init_fn=show_warnings, **options)
    for _ in range(2):
        list(loader)
    assert capfd.readouterr().err.count("this is rank 0 of 2") == 1


def show_warnings(worker):
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)


@pytest.mark.parametrize(("rank", "world_size"), [("3", "3"), ("-1", "2"), ("x", "2"), ("0", "")])
def test_a_contradictory_environment(rank, world_size, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(ValueError, match=f"RANK={rank!r} and WORLD_SIZE={world_size!r}"):
        iter(StreamDataset(range(7)))
    list(StreamDataset(range(7), rank=0, world_size=1))


# Copies and lifetimes.


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_workers_follow_their_copy(make, method):
    dataset = StreamDataset(range(50), 10)
    dataset.set_epoch(1)
    copied = make(dataset)
    options = {"num_workers": 1, "persistent_workers": True, "timeout": 60}
    loaders = [
        DataLoader(stream, None, multiprocessing_context=method, **options)
        for stream in (dataset, copied)
    ]
    first = [list(loader) for loader in loaders]
    assert first[0] == first[1]
    copied.set_epoch(5)
    assert [dataset.epoch, copied.epoch] == [2, 5]
    assert len({str(list(stream)) for stream in (*loaders, dataset, copied)}) == 4


class Samples(list):
    """A shard that allows weak references."""


@pytest.mark.parametrize("buffer", [0, 5])
def test_a_dropped_pass_releases_its_shard(buffer):
    alive = []

    def open_shard(_):
        samples = Samples([1] * 9)
        alive.append(weakref.ref(samples))
        return samples

    samples = iter(StreamDataset([0, 1], buffer, open_shard=open_shard))
    gc.disable()
    try:
        next(samples)
        assert alive[-1]() is not None
        del samples
        assert alive[-1]() is None
    finally:
        gc.enable()


def test_repr():
    text = "StreamDataset(2 shards, shuffle_buffer=3, seed=0, uneven='keep', on_error='raise', epoch=0)"
    assert repr(StreamDataset([1, 2], 3, open_shard=iter)) == text
    assert repr(StreamDataset(range(3))).startswith("StreamDataset(range, ")
