"""Tests of all streams: samples, epochs, states, copies and loaders, with ranks and workers."""

import copy
import functools
import io
import itertools
import json
import pickle
import time
from collections import Counter

import datasets
import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from messages import check
from pinfeed import ArrayDataset, DeviceLoader
from pinfeed.batches import SampleBatch
from pinfeed.packing import PackedStream
from streams import as_worker, keep, numbered, parts_of, stream

COUNT = 60
SHARDS = [range(10 * n, 10 * n + 10) for n in range(6)]
UNEQUAL = numbered([0, 13, 1, 6, 25, 0, 15])
DOCUMENTS = [[i] * (i % 5 + 1) for i in range(COUNT)]


class Numbers(IterableDataset[int]):
    def __iter__(self):
        return iter(range(COUNT))


def each():
    yield from range(COUNT)


def one_by_one():
    return iter(Numbers())


def read_lines(text):
    return map(int, io.StringIO(text))


def hugging_face(shards, **shuffle):
    table = datasets.Dataset.from_dict({"i": range(COUNT), "tokens": DOCUMENTS})
    stream = table.to_iterable_dataset(shards)
    return stream.shuffle(seed=1, **shuffle) if shuffle else stream


def rows_of_batches():
    return ({"i": i} for batch in hugging_face(4).iter(8) for i in batch["i"])


def packed(source, buffer=0, uneven="keep", **options):
    options = {"seq_length": 8, "batch_size": 2, "window": 13} | options
    make = stream(source, buffer, uneven=uneven)
    return lambda **ranks: PackedStream(make(**ranks), **options)


UNSHUFFLED = {
    "list": stream([*range(COUNT)]),
    "rows": stream(ArrayDataset(np.arange(COUNT))),
    "generator function": stream(each),
    "IterableDataset": stream(one_by_one),
    "shards": stream(SHARDS, open_shard=iter),
    "texts": stream(["".join(f"{n}\n" for n in shard) for shard in SHARDS], open_shard=read_lines),
    "drop": stream(SHARDS, open_shard=iter, uneven="drop"),
    "repeat": stream(each, uneven="repeat"),
    "repeat, unequal": stream(UNEQUAL, open_shard=iter, uneven="repeat"),
    "Hugging Face": stream(hugging_face(7)),
    "Hugging Face, mapped": stream(hugging_face(1).map(dict)),
    "Hugging Face, batches": stream(rows_of_batches),
    "Hugging Face, a shuffled function": stream(functools.partial(hugging_face, 7, buffer_size=9)),
}
SHUFFLED = {
    "shuffled": stream(each, 7),
    "shuffled shards": stream(UNEQUAL, 1, open_shard=iter),
    "buffered shards": stream(SHARDS, 7, seed=3, open_shard=iter),
    "drop, shuffled": stream(UNEQUAL, 9, open_shard=iter, uneven="drop"),
    "repeat, shuffled": stream(range(COUNT), 9, uneven="repeat"),
    "Hugging Face, shuffled": stream(hugging_face(7, buffer_size=9)),
    "packed": packed(DOCUMENTS),
    "packed, shuffled": packed(DOCUMENTS, 5, strategy="first_fit"),
    "packed, drop": packed(DOCUMENTS, 5, "drop"),
    "packed, repeat": packed(DOCUMENTS, uneven="repeat"),
    "packed, Hugging Face": packed(hugging_face(5), 10, key="tokens"),
}
STREAMS = UNSHUFFLED | SHUFFLED
every_stream = pytest.mark.parametrize("kind", STREAMS)


def numbers(samples):
    """Returns the numbers of samples, which may be batches of documents."""
    ones = itertools.chain.from_iterable(
        sample if isinstance(sample, SampleBatch) else [sample] for sample in samples
    )
    keys = {dict: "i", list: 0}
    return [int(one[keys[type(one)]] if type(one) in keys else one) for one in ones]


def parts(make, *readers_and_epoch):
    """Returns the numbers that each (rank, worker) yields, by sample or batch."""
    by_reader = parts_of(make, *readers_and_epoch)
    return {key: [numbers([sample]) for sample in part] for key, part in by_reader.items()}


def epochs(make, count, workers=0):
    """Returns the numbers of each epoch, in the order of a DataLoader, which takes turns."""
    result = []
    for epoch in range(count):
        turns = itertools.zip_longest(*parts(make, 1, workers, epoch).values(), fillvalue=[])
        result.append([*itertools.chain(*itertools.chain(*turns))])
    return result


def uneven_of(kind):
    return next((name for name in ("drop", "repeat") if name in kind), "keep")


def epoch_of(dataset):
    return getattr(dataset, "stream", dataset).epoch


def loader_of(dataset, workers, kind=DataLoader, **options):
    return kind(dataset, None, num_workers=workers, collate_fn=keep, **options)


# Samples.


@every_stream
@pytest.mark.parametrize(("world_size", "workers"), [(1, 0), (1, 3), (2, 0), (2, 2), (3, 3)])
def test_each_sample_once_or_equal_counts(kind, world_size, workers):
    uneven = uneven_of(kind)
    by_reader = parts(STREAMS[kind], world_size, workers)
    assert by_reader == parts(STREAMS[kind], world_size, workers)
    times = Counter(itertools.chain(*itertools.chain(*by_reader.values())))
    assert set(times) <= set(range(COUNT))
    if uneven != "drop":
        assert len(times) == COUNT
    if uneven != "repeat":
        assert set(times.values()) == {1}
    for (_, worker), samples in by_reader.items():
        assert uneven == "keep" or len(samples) == len(by_reader[0, worker])
    if "packed" not in kind:
        short = (world_size - 1) * max(workers, 1)
        assert abs(times.total() - COUNT) <= (0 if uneven == "keep" else short)
    if kind == "shuffled":  # readers shuffle differently
        turns = {
            str([number // len(by_reader) for (number,) in part]) for part in by_reader.values()
        }
        assert len(turns) == len(by_reader)


# Epochs.

WITH_WORKERS = (
    "list",
    "repeat, shuffled",
    "buffered shards",
    "Hugging Face, shuffled",
    "packed, drop",
)
METHODS = [(method, stays) for method in ("spawn", "forkserver") for stays in (False, True)]


@pytest.mark.parametrize(
    ("kind", "workers", "method", "stays"),
    [
        *((kind, 0, None, False) for kind in STREAMS),
        *((kind, 2, "fork", True) for kind in WITH_WORKERS),
        ("buffered shards", 2, "fork", False),
        *(("buffered shards", 2, *row) for row in METHODS),
    ],
)
def test_each_pass_starts_the_next_epoch(kind, workers, method, stays):
    make = STREAMS[kind]
    expected = epochs(make, 5, workers)
    assert len({str(order) for order in expected}) == (5 if kind in SHUFFLED else 1)
    dataset = make()
    options = {"multiprocessing_context": method, "persistent_workers": stays}
    loader = loader_of(dataset, workers, timeout=60 if workers else 0, **options)
    for epoch in (0, 1):
        assert epoch_of(dataset) == epoch
        assert numbers(loader) == expected[epoch]
    for epoch in (4, 0):
        dataset.set_epoch(epoch)
        assert epoch_of(dataset) == epoch
        assert numbers(loader) == expected[epoch]
    first = next(iter(loader))  # an interrupted pass counts
    assert numbers([first]) == expected[1][: len(numbers([first]))]
    assert numbers(loader) == expected[2]
    assert numbers(dataset) == epochs(make, 4)[3]


@every_stream
def test_copies_are_independent(kind):
    dataset = STREAMS[kind]()
    expected = epochs(STREAMS[kind], 4)
    makers = [lambda stream: pickle.loads(pickle.dumps(stream)), copy.deepcopy, copy.copy]
    for make in makers[:2] if "packed" in kind else makers:  # a shallow copy shares its stream
        dataset.set_epoch(0)
        copied = make(dataset)
        assert repr(copied) == repr(dataset)
        assert numbers(copied) == numbers(dataset) == expected[0]
        copied.set_epoch(3)
        assert (epoch_of(dataset), epoch_of(copied)) == (1, 3)
        assert numbers(copied) == expected[3]


# States.


@every_stream
@pytest.mark.parametrize(("rank", "world_size", "worker", "workers"), [(0, 1, 0, 0), (1, 2, 1, 2)])
def test_a_state_continues_a_pass(kind, rank, world_size, worker, workers):
    """If ranks get equally many samples, the state of any rank serves, as with Lightning, which saves rank 0's."""
    make = functools.partial(STREAMS[kind], world_size=world_size)
    saves = 0 if uneven_of(kind) != "keep" else rank
    expected = [
        [*itertools.chain(*parts(STREAMS[kind], world_size, workers, epoch)[rank, worker])]
        for epoch in range(3)
    ]
    with as_worker(worker, workers):
        for taken in (0, 1, 9, 23, COUNT):  # beyond the end, a state resumes with nothing
            saved, received = make(rank=saves), make(rank=rank)
            for dataset in (saved, received):
                dataset.set_epoch(1)
            iterator, other = iter(saved), iter(received)
            for _ in itertools.islice(iterator, taken):
                pass
            head = numbers(itertools.islice(other, taken))
            state = json.loads(json.dumps(saved.state_dict()))
            resumed = make(rank=rank)
            resumed.load_state_dict(state)
            own_rank = {"rank": rank} if "rank" in state else {}
            assert resumed.state_dict() == state | own_rank
            assert epoch_of(resumed) == 1
            assert head + numbers(resumed) == expected[1]
            assert numbers(resumed) == expected[2]


@every_stream
def test_a_state_and_set_epoch(kind):
    """The state determines the epoch of the next pass; set_epoch does only if called later."""
    make = STREAMS[kind]
    expected = epochs(make, 4)
    dataset = make()
    dataset.set_epoch(1)
    iterator = iter(dataset)
    head = numbers(itertools.islice(iterator, 5))
    state = dataset.state_dict()
    dataset.set_epoch(3)
    assert dataset.state_dict() == state  # a pass stays in its epoch
    for before, chosen in ((True, 2), (False, 1), (False, 2)):
        resumed = make()
        if before:
            resumed.set_epoch(chosen)
        resumed.load_state_dict(state)
        if not before:
            resumed.set_epoch(chosen)
        is_dropped = not before and chosen == 2
        first = numbers(resumed)
        assert first == expected[2] if is_dropped else head + first == expected[1]
        assert numbers(resumed) == expected[3 if is_dropped else 2]


@every_stream
def test_a_state_of_the_main_process_in_a_worker(kind):
    """Workers share it if it can be resharded."""
    make = STREAMS[kind]
    dataset = make()
    iterator = iter(dataset)
    head = numbers(itertools.islice(iterator, 5))
    dataset.load_state_dict(dataset.state_dict())
    with as_worker(0, 1):
        if kind in (*UNSHUFFLED, "shuffled shards", "Hugging Face, shuffled"):
            assert head + numbers(dataset) == epochs(make, 1)[0]
            return
        message = (
            "loaded into the dataset itself works only without workers, and this is worker 0 of 1"
        )
        check(lambda: list(dataset), RuntimeError, message)
    assert head + numbers(loader_of(dataset, 0)) == epochs(make, 1)[0]


@pytest.mark.parametrize(
    ("kind", "workers", "stays"),
    [
        *((kind, 0, False) for kind in STREAMS),
        *((kind, 2, stays) for kind in ("buffered shards", "packed, drop") for stays in (False, True)),
    ],
)  # fmt: skip
def test_loaders_resume_with_the_remaining_samples(kind, workers, stays):
    """Also after the last sample, in a loader that has begun, and in a DeviceLoader."""

    def new_loader():
        options = {"persistent_workers": stays}
        return loader_of(STREAMS[kind](), workers, StatefulDataLoader, **options)

    expected = epochs(STREAMS[kind], 4, workers)
    loader = new_loader()
    assert numbers(loader) == expected[0]
    states, heads = [copy.deepcopy(loader.state_dict())], [[]]  # of the end of epoch 0
    for sample in loader:
        states.append(copy.deepcopy(loader.state_dict()))
        heads.append(heads[-1] + numbers([sample]))
    assert heads[-1] == expected[1]
    over = copy.deepcopy(loader.state_dict())
    for taken in (3,) if workers else (0, 1, 5, -1):
        for loader in (
            new_loader(),
            DeviceLoader(DeviceLoader(new_loader(), "cpu"), "cpu", prefetch=3),
        ):
            loader.load_state_dict(states[taken])
            assert heads[taken] + numbers(loader) == expected[1]
            assert numbers(loader) == expected[2]
    loader.load_state_dict([states[2]])  # a list, into a loader that has begun
    ahead = iter(loader)
    more = numbers(itertools.islice(ahead, 2))
    state = copy.deepcopy(loader.state_dict())
    ahead.close()
    assert str(loader.state_dict()) == str(state)  # prefetched samples don't count
    for loaded, head, epoch in ((state, heads[2] + more, 1), (over, [], 2)):
        loader = new_loader()
        loader.load_state_dict(loaded)
        assert head + numbers(loader) == expected[epoch]
        loader.dataset.set_epoch(3)
        assert numbers(loader) == expected[3]


# Passes that overlap.


def wait_by_number(worker):
    time.sleep(0.3 * worker)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_set_epoch_while_workers_start(method):
    expected = epochs(STREAMS["buffered shards"], 6, 2)
    dataset = STREAMS["buffered shards"]()
    options = {"multiprocessing_context": method, "worker_init_fn": wait_by_number}
    loader = loader_of(dataset, 2, **options)
    under_way = iter(loader)
    dataset.set_epoch(5)
    assert numbers(under_way) == expected[0]
    assert numbers(loader) == expected[5]


@pytest.mark.parametrize("stays", [False, True])
def test_two_passes_at_once(stays):
    expected = epochs(STREAMS["buffered shards"], 4, 2)
    dataset = STREAMS["buffered shards"]()
    loaders = [loader_of(dataset, 2, persistent_workers=stays) for _ in range(2)]
    for number in range(2):
        both = zip(*itertools.zip_longest(*loaders), strict=True)
        seen = [expected.index(numbers(samples)) for samples in both]
        assert sorted(seen) == [2 * number, 2 * number + 1]
