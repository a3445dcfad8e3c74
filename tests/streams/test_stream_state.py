"""StreamDataset: a state continues a pass exactly, is small, and raises where it can't be right."""

import itertools
import json
import math
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfeed import StreamDataset
from streams import as_worker, numbered

SIZES = st.lists(st.integers(0, 6), min_size=1, max_size=12)
MANY_SIZES = st.lists(st.sampled_from([0, 0, 1, 2, 3]), min_size=90, max_size=200)
BUFFERS = st.sampled_from([0, 1, 2, 3, 7, 100])
EVEN = st.sampled_from(["keep", "drop", "repeat"])

Make = Callable[[], StreamDataset]


def resumed_at(make, stops, epoch):
    """Returns an epoch in parts, each from a new dataset that resumes the previous one."""
    state = None
    for stop in [*stops, None]:
        dataset = make()
        if state is None:
            dataset.set_epoch(epoch)
        else:
            dataset.load_state_dict(json.loads(json.dumps(state)))
            assert dataset.epoch == epoch
            assert dataset.state_dict() == state
        samples = iter(dataset)
        yield list(itertools.islice(samples, stop))
        state = dataset.state_dict()


@given(SIZES | MANY_SIZES, st.tuples(*[st.integers(1, 3)] * 4), BUFFERS, EVEN, st.data())
def test_resume_anywhere(sizes, split, buffer, uneven, data):
    ranks, workers = split[0], split[1]
    rank, worker = split[2] % ranks, split[3] % workers
    shards = numbered(sizes)

    source, open_shard = (shards, iter) if data.draw(st.booleans()) else (range(sum(sizes)), None)
    is_shuffled = buffer > 1 or (buffer == 1 and open_shard is not None and len(shards) > 1)
    options = {"seed": 5 if is_shuffled else None, "open_shard": open_shard, "uneven": uneven}

    def make():
        return StreamDataset(source, buffer, rank=rank, world_size=ranks, **options)

    epoch = data.draw(st.integers(0, 2))
    stops = data.draw(st.lists(st.integers(0, 12) | st.integers(0, 150), max_size=6))
    stops.append(1000)  # beyond the end, a state resumes with nothing
    with as_worker(worker, workers):
        whole = make()
        whole.set_epoch(epoch)
        samples = list(whole)
        stretches = list(resumed_at(make, stops, epoch))
    assert list(itertools.chain(*stretches)) == samples


# Cost of a state.


class Numbers:
    """Opens shards, and counts the opened and the read ones."""

    def __init__(self):
        self.opened, self.read = [], 0

    def __call__(self, shard):
        self.opened.append(shard)
        return self.samples(shard)

    def samples(self, shard):
        for sample in range(100):
            self.read += 1
            yield 100 * shard + sample


@pytest.mark.parametrize(("size", "taken"), [(0, 4250), (200, 90_000)])
def test_finished_shards_are_not_opened_again(size, taken):
    """A buffer is refilled from shortly before the position."""
    dataset, numbers = StreamDataset(range(1000), size, open_shard=Numbers()), Numbers()
    list(itertools.islice(iter(dataset), taken))
    resumed = StreamDataset(range(1000), size, open_shard=numbers)
    resumed.load_state_dict(dataset.state_dict())
    sample = next(iter(resumed))
    if size == 0:
        assert (sample, numbers.opened, numbers.read) == (4250, [42], 51)
    else:
        assert size < numbers.read < 3 * size * math.log(size)


@pytest.mark.parametrize("size", [10**13, sys.maxsize])
@pytest.mark.parametrize("shards", [3, 100])
def test_a_buffer_can_be_larger_than_any_memory(shards, size):
    def make():
        return StreamDataset(range(shards), size, open_shard=lambda n: [n, n + shards])

    whole = list(make())
    assert sorted(whole) == list(range(2 * shards))
    stops = [2, 3, 1]
    assert [*itertools.chain(*resumed_at(make, stops, 0))] == whole


def test_a_state_stays_small():
    for options in ({}, {"shuffle_buffer": 1000}):
        dataset = StreamDataset(range(20_000), open_shard=lambda n: range(50), **options)
        samples = iter(dataset)
        for _ in range(3):
            list(itertools.islice(samples, 250_000))
            assert len(json.dumps(dataset.state_dict())) < 8000
    assert len(json.dumps(StreamDataset(range(9)).state_dict())) < 250


def test_ranks_that_read_the_same_shards_need_no_earlier_ones():
    uneven = {"uneven": "drop", "rank": 1, "world_size": 4}
    dataset = StreamDataset(range(20), open_shard=lambda n: range(50), **uneven)
    list(itertools.islice(iter(dataset), 201))
    state = dataset.state_dict()
    assert [state["yielded"], state["starts"]] == [201, [[16, 800]]]


# Invalid states.


def make_stream(**changes):
    options = {"source": list(range(8)), "shuffle_buffer": 4, "seed": 3, "uneven": "keep"}
    options |= {"rank": 1, "world_size": 2}
    return StreamDataset(**options | {"open_shard": lambda n: range(3)} | changes)


def a_state():
    dataset = make_stream()
    next(iter(dataset))
    return dataset.state_dict()


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        ({}, {"seed": 4}, "seed is 3 in the state and 4 here"),
        ({}, {"rank": 0}, "rank is 1 in the state and 0 here"),
        ({}, {"world_size": 3}, "world_size is 2 in the state and 3 here"),
        ({}, {"uneven": "drop"}, "uneven is 'keep' in the state and 'drop' here"),
        ({}, {"shuffle_buffer": 5}, "shuffle_buffer is 4 in the state and 5 here"),
        ({}, {"source": range(9)}, "shards is 8 in the state and 9 here"),
        ({}, {"seed": 4, "world_size": 3}, "seed is 3 .* 4 here, world_size is 2 in the state and 3 here"),
        ({"source": range(10), "open_shard": None}, {"source": range(11), "open_shard": None}, "samples is 10 in the state and 11 here"),
    ],
)  # fmt: skip
def test_a_state_of_another_stream(there, here, message):
    stream = make_stream(**there)
    next(iter(stream))
    state = stream.state_dict()
    with pytest.raises(ValueError, match=f"the state is from another stream: {message}"):
        make_stream(**here).load_state_dict(state)
    make_stream(**there).load_state_dict(state)


def test_a_state_of_another_worker_or_an_earlier_plan():
    dataset = StreamDataset(range(10))
    with as_worker(1, 2):
        state = dataset.state_dict()
    with as_worker(0, 2), pytest.raises(ValueError, match="worker is 1 in the state and 0 here"):
        dataset.load_state_dict(state)
    with pytest.raises(ValueError, match="workers is 2 in the state and 1 here"):
        dataset.load_state_dict(state)
    with pytest.raises(ValueError, match=r"another stream: planning is 1 in the state and 4 here;"):
        dataset.load_state_dict(dataset.state_dict() | {"planning": 1})


@pytest.mark.parametrize("error", [TypeError, NotImplementedError])
def test_a_source_of_unknown_length(error):
    class Source(list):
        def __len__(self):
            raise error

    dataset, resumed = (StreamDataset(Source(range(10))) for _ in range(2))
    head = list(itertools.islice(iter(dataset), 3))
    assert dataset.state_dict()["samples"] is None
    resumed.load_state_dict(dataset.state_dict())
    assert head + list(resumed) == list(range(10))


# An invalid entry of a state, and the message about it.
BAD_STATES = {
    "yielded": [("1", "must be an int"), (-1, "must be at least"), (2**64, "at most")],
    "arrived": [(1.5, "must be an int"), (0, "must be at least 1"), (2**70, "at most")],
    "epoch": [(None, "must be an int"), (-1, "must be at least"), (2**70, "at most")],
    "starts": [
        *((starts, "must be pairs") for starts in ([], 5, "ab", [[1, 2, 3]])),
        *((starts, "in order") for starts in ([[0, 1], [2, 5]], [[0, 1], [1, 0]], [[-1, 0]], [[3, 5], [4, 6], [5, 7]])),
        ([[5, 0]], "in order and up to 4"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (5, TypeError, "state must be a dict, got int"),
        ({}, ValueError, "got one without epoch, yielded, arrived, starts"),
        *((a_state() | {key: value}, TypeError if "an int" in expected else ValueError, rf"state\['{key}'\] .*{expected}")
          for key, values in BAD_STATES.items() for value, expected in values),
    ],
)  # fmt: skip
def test_invalid_states(state, error, message):
    dataset = make_stream()
    with pytest.raises(error, match=f"StreamDataset: .*{message}"):
        dataset.load_state_dict(state)
    assert list(dataset)


TOO_FEW = "samples, but had"


@pytest.mark.parametrize("buffer", [0, 5])
@pytest.mark.parametrize("yielded", [30, 2**48])
@pytest.mark.parametrize("starts", [[[0, 0]], [[7, 21]], [[8, 24]]])
def test_more_samples_than_exist(starts, yielded, buffer):
    with as_worker(1, 9):
        dataset = StreamDataset(range(8), buffer, open_shard=lambda n: range(3))
        dataset.load_state_dict(dataset.state_dict() | {"yielded": yielded, "starts": starts})
        with pytest.raises(ValueError, match=TOO_FEW):
            list(dataset)


@pytest.mark.parametrize("buffer", [0, 5])
def test_a_stream_that_became_shorter(buffer):
    sizes = [10, 10]

    def make():
        return StreamDataset(["a", "b"], buffer, open_shard=lambda n: range(sizes["ab".index(n)]))

    dataset = make()
    list(itertools.islice(iter(dataset), 14 - buffer))
    sizes[:] = [10, 2] if buffer == 0 else [2, 2]
    resumed = make()
    resumed.load_state_dict(dataset.state_dict())
    with pytest.raises(ValueError, match=TOO_FEW):
        list(resumed)


def test_resume_reads_from_too_late_a_start():
    dataset = StreamDataset(range(8), open_shard=lambda n: range(3))
    dataset.load_state_dict(dataset.state_dict() | {"yielded": 5, "starts": [[2, 6]]})
    with pytest.raises(ValueError, match=r"state\['starts'\] must reach back to sample 5"):
        list(dataset)


# Names of shards.


def begins_at(number):
    return {"a": 1}, ["/data/a.npy", (number, 9)]


@pytest.mark.parametrize(
    ("shards", "same", "other"),
    [
        (  # names of folders and signatures are ignored
            ["/data/a.npy", "/data/b.npy"],
            [Path("/elsewhere/a.npy"), "https://host/b.npy?signed=1"],
            ["/data/b.npy", "/data/a.npy"],
        ),
        # A repr can contain an address, which differs in every process.
        ([object(), (range(3), 1)], [object(), (range(3), 1)], [object(), (range(3), 2)]),
        ([begins_at(3)], [begins_at(3)], [begins_at(4)]),
        # A lone surrogate is not a character, but str and JSON can contain it.
        (["\ud800b", "c\udc80"], ["\ud800b", "c\udc80"], ["\ud800b", "c\udc81"]),
        # Names that are equal when joined.
        (["a\0b", "c"], ["a\0b", "c"], ["a", "b\0c"]),
        ([("a, b",)], [("a, b",)], [("a", "b")]),
        ([("1",)], [("1",)], [(1,)]),
        # Differences that names don't show, as the guide says.
        (["train/0"], ["val/0"], ["val/1"]),
        (["https://host/a?part=0"], ["https://host/a?part=1"], ["https://host/b?part=0"]),
        ([{"part": 0}], [{"part": 1}], [["part"]]),
        ([np.int64(0)], [np.int64(1)], [0]),
    ],
)
def test_a_state_of_other_shards(shards, same, other):
    state = json.loads(json.dumps(StreamDataset(shards, open_shard=iter).state_dict()))
    StreamDataset(same, open_shard=iter).load_state_dict(state)
    with pytest.raises(ValueError, match=r"shard_names is .* in the state and .* here;"):
        StreamDataset(other, open_shard=iter).load_state_dict(state)


def test_workers_that_are_threads(monkeypatch):
    """With torch's thread workers: one dataset, and a worker info per thread."""
    local = threading.local()
    monkeypatch.setattr(
        "pinfeed.samplers.epoch_clock.get_worker_info", lambda: getattr(local, "info", None)
    )
    stream = StreamDataset(range(100), shuffle_buffer=7, seed=3)
    barrier = threading.Barrier(3)

    def read(worker):
        local.info = SimpleNamespace(id=worker, num_workers=3, seed=worker)
        samples = iter(stream)
        barrier.wait()
        first = [next(samples) for _ in range(10)]
        barrier.wait()
        state = stream.state_dict()
        assert (state["worker"], state["yielded"]) == (worker, 10)
        rest = list(samples)
        barrier.wait()
        stream.load_state_dict(state)
        barrier.wait()
        assert list(stream) == rest
        return first, rest

    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(read, range(3)))
    every = itertools.chain.from_iterable(first + rest for first, rest in parts)
    assert sorted(every) == list(range(100))
