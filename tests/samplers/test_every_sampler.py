"""Tests of all samplers: epochs, states, ranks, batches, loaders, and bad arguments."""

import copy
import functools
import itertools
import json
import pickle
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed
from pinfeed import ArrayDataset, Collate, IndexedDataset
from test_epoch_clock import Table

COUNT = 40
ARRAYS = ArrayDataset({"index": np.arange(COUNT)})
LENGTHS = np.random.default_rng(1).integers(1, 20, COUNT)

# Typical arguments, then each sampler with other settings.
DATA = {
    "shuffle": (pinfeed.samplers.ShuffleSampler, COUNT, {"batch_size": 7}),
    "buckets": (pinfeed.samplers.LengthBucketSampler, LENGTHS, {"max_tokens": 60, "bucket_batches": 2}),
    "pack": (pinfeed.samplers.PackSampler, LENGTHS, {"seq_length": 20, "batch_size": 3}),
    "first fit": (pinfeed.samplers.PackSampler, LENGTHS, {"seq_length": 20, "strategy": "first_fit"}),
    "wrapped": (pinfeed.samplers.PackSampler, LENGTHS, {"seq_length": 20, "strategy": "wrapped"}),
    "weighted": (pinfeed.samplers.WeightedSampler, LENGTHS, {"batch_size": 7}),
    "drawn once": (pinfeed.samplers.WeightedSampler, LENGTHS, {"num_samples": 30, "replacement": False, "batch_size": 7}),
}  # fmt: skip


def maker(kind, data, options):
    return lambda **changed: kind(changed.pop("data", data), **options | changed)


SAMPLERS = {name: maker(*row) for name, row in DATA.items()}
every_sampler = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
# Starting workers is slow. They receive batches, which are alike, except that some carry rows or copies.
with_workers = pytest.mark.parametrize(
    ("make", "workers"),
    [
        *(pytest.param(make, 0, id=name) for name, make in SAMPLERS.items()),
        *(pytest.param(SAMPLERS[name], 2, id=f"{name}, workers") for name in ("pack", "weighted")),
    ],
)


def lists(batches):
    return [list(batch) for batch in batches]


def epochs(make, count, **options):
    """Returns the batches of epochs chosen with `set_epoch`."""
    result = []
    for epoch in range(count):
        sampler = make(**options)
        sampler.set_epoch(epoch)
        result.append(lists(sampler))
    return result


def at(sampler, epoch, taken):
    """Returns the state after this number of batches of an epoch; None: after the end."""
    sampler = copy.deepcopy(sampler)
    sampler.set_epoch(epoch)
    iterator = iter(sampler)
    batches = list(itertools.islice(iterator, taken))
    assert len(batches) == (len(sampler) if taken is None else taken)
    return sampler.state_dict()


def loader_of(sampler, workers=0, **options):
    """Returns a DataLoader whose batches are lists of indices."""
    data = range(COUNT)
    return DataLoader(data, batch_sampler=sampler, num_workers=workers, collate_fn=list, **options)


# Epochs


EVENTS = [
    *(("set_epoch", epoch) for epoch in (0, 1, 3)),
    *(("load_state_dict", 1, taken) for taken in (2, None)),  # None: finished
    *(("begin",), ("next",), ("rest",), ("close",)),
]


@functools.cache
def plan(make, epoch):
    sampler = make()
    sampler.set_epoch(epoch)
    return lists(sampler)


@functools.cache
def state(make, epoch, taken):
    return at(make(), epoch, taken)


def follow(make, sequence):
    """Asserts that a sampler follows the table of `EpochClock`, and that its states say where it is."""
    sampler, table = make(), Table()
    iterators = []  # which stay alive
    iterator = where = None  # the latest pass until it has ended, and its position
    position, is_latest = (
        (0, 0),
        False,
    )  # the position of states, and whether it is the latest pass's
    for event, *arguments in sequence:
        if event == "set_epoch":
            sampler.set_epoch(*arguments)
            table.set(*arguments)
        elif event == "load_state_dict":
            is_ignored = arguments[1] is None and table.state > ("set", arguments[0])
            sampler.load_state_dict(state(make, *arguments))
            table.load(*arguments)
            if not is_ignored:
                position, is_latest = arguments, False
        elif event == "begin":
            iter(sampler)  # without requests, it doesn't count
            iterator = iter(sampler)
            iterators.append(iterator)
            epoch, taken = table.begin()
            where = position = epoch, (taken or 0) + 1
            is_latest = True
            batch = next(iterator)
            assert (batch, batch.epoch) == (plan(make, epoch)[taken or 0], epoch)
        elif iterator is not None:
            epoch, taken = where
            if event == "close":
                iterator.close()
            batches = lists(itertools.islice(iterator, 1 if event == "next" else None))
            rest = plan(make, epoch)[taken:]
            assert batches == {"next": rest[:1], "rest": rest, "close": []}[event]
            where = epoch, taken + len(batches)
            is_finished = event == "rest" or (event == "next" and not rest)
            if is_latest:
                position = (epoch, None) if is_finished else where
                if batches:
                    table.continue_pass()
            if is_finished or event == "close":
                iterator = None
                if is_latest:
                    table.end()
        assert sampler.epoch == table.next(), sequence
        if table.state[0] == "set" and not (is_latest and iterator is not None):
            position = table.state[1], 0
        assert sampler.state_dict() == state(make, *position), sequence


@every_sampler
def test_sequences_of_events_follow_the_table_of_the_clock(make):
    sequences = [*itertools.product(EVENTS, repeat=4)]
    if make is not SAMPLERS["shuffle"]:  # the others plan longer
        sequences = random.Random(0).sample(sequences, 200)
    for sequence in sequences:
        follow(make, sequence)


@every_sampler
def test_bad_epochs(make):
    sampler = make()
    for epoch, error in ((-1, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=rf"{type(sampler).__name__}: epoch must be .*got {epoch}"):
            sampler.set_epoch(epoch)


@with_workers
def test_each_loop_over_a_loader_starts_the_next_epoch(make, workers):
    expected = epochs(make, 4)
    for persistent in {False, workers > 0}:
        loader = loader_of(make(), workers, persistent_workers=persistent)
        assert len(loader) == len(expected[0])
        assert list(loader) == expected[0]
        assert list(loader) == expected[1]
        assert next(iter(loader)) == expected[2][0]
        for batch, _ in zip(loader, expected[3], strict=True):
            assert len(loader) == len(expected[3])
            assert batch in expected[3]


@every_sampler
def test_attributes_are_read_only(make):
    """Also during an epoch."""
    sampler = make()
    batches = iter(sampler)
    first, plan = next(batches), lists(make())
    public = [name for name in dir(sampler) if not name.startswith("_")]
    settings = [name for name in public if not callable(getattr(sampler, name))]
    assert {"seed", "rank", "world_size", "batch_size", "drop_last", "epoch"} <= set(settings)
    constants = {"MIN_ROWS", "PLANNING", "SETTINGS", "SHOWN"}
    for name in set(settings) - constants:
        message = f"{type(sampler).__name__}: {name} can't be changed, .*; create a new "
        with pytest.raises(AttributeError, match=message):
            setattr(sampler, name, -7)
    assert [list(first), *lists(batches)] == plan
    for copied in (copy.copy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert repr(copied) == repr(sampler)


@pytest.mark.parametrize(("kind", "data", "options"), DATA.values(), ids=DATA)
def test_subclasses_can_have_attributes(kind, data, options):
    class Counting(kind):
        total = property(
            lambda self: self._total, lambda self, value: setattr(self, "_total", value)
        )

        def __init__(self, data, **options):
            self.seed = 2**70
            super().__init__(data, seed=2**70, **options)
            self.calls = 0

        def __iter__(self):
            self.calls += 1
            self.total = self.calls
            return super().__iter__()

    sampler = Counting(data, **options)
    for number in (1, 2):
        assert list(sampler)
        assert sampler.calls == sampler.total == number
    with pytest.raises(AttributeError, match="Counting: seed can't be changed"):
        sampler.seed = 1


@every_sampler
def test_epochs_and_seeds_differ_and_repeat(make):
    result = {str(epochs(make, 1, seed=seed)) for seed in (0, 1, 2**70)} | {
        str(epochs(make, 2)[1:])
    }
    assert len(result) == 4
    for epoch, batches in enumerate(epochs(make, 3)):
        sampler = make()
        sampler.set_epoch(epoch)
        assert len(sampler) == len(batches)
        assert lists(pickle.loads(pickle.dumps(sampler))) == lists(sampler) == batches
    assert len(pickle.dumps(sampler)) < 3000  # without its plan


@every_sampler
@pytest.mark.parametrize("world_size", [1, 3, 4])
@pytest.mark.parametrize(
    "changed", [{}, {"drop_last": True}, {"uneven": "keep"}, {"uneven": "drop"}, {"shuffle": False}]
)
def test_epochs_and_ranks_have_equal_batch_counts(make, changed, world_size):
    if not {*changed} <= {*type(make()).__init__.__annotations__}:
        return
    samplers = [make(rank=rank, world_size=world_size, **changed) for rank in range(world_size)]
    counts = {len(sampler) for sampler in samplers}
    for _ in range(6):
        counts |= {len(lists(sampler)) for sampler in samplers} | {len(samplers[0])}
    for sampler in samplers:
        sampler.set_epoch(9)
        counts |= {len(sampler), len(lists(sampler))}
        state = at(sampler, 3, 1)
        sampler.load_state_dict(state)
        counts |= {len(sampler), 1 + len(lists(sampler)), len(lists(sampler))}
    assert len(counts) == 1


@every_sampler
def test_the_order_does_not_depend_on_ranks(make):
    for epoch, batches in enumerate(epochs(make, 2)):
        alone = list(itertools.chain(*batches))
        for world_size in (2, 3):
            ranks = [
                epochs(make, 2, rank=rank, world_size=world_size)[epoch]
                for rank in range(world_size)
            ]
            *steps, _ = zip(*ranks, strict=True)  # the last rank repeats some
            together = list(itertools.chain(*itertools.chain(*steps)))
            assert together == alone[: len(together)]
            assert len(together) > COUNT / 3


@with_workers
def test_set_epoch_in_a_loop_keeps_the_state(make, workers):
    def new_loader():
        return pinfeed.DeviceLoader(loader_of(make(), workers), "cpu", prefetch=4)

    expected = epochs(make, 3)
    loader = new_loader()
    count = len(expected[0])
    for epoch, taken in ((0, count - 1), (1, 2))[workers > 0 :]:  # workers are ahead, or done
        loader.batch_sampler.set_epoch(epoch)
        loop = iter(loader)
        seen = [next(loop)]
        loader.batch_sampler.set_epoch(epoch)
        seen += itertools.islice(loop, taken - 1)
        state = loader.state_dict()
        loader.batch_sampler.set_epoch(2)
        assert loader.state_dict() == state
        resumed = new_loader()
        resumed.load_state_dict(state)
        assert seen + list(resumed) == expected[epoch]
        loop.close()
        assert loader.state_dict() == at(make(), 2, 0)
    assert list(loader) == expected[2]


@every_sampler
def test_two_iterators_at_once(make):
    expected = epochs(make, 4)
    sampler = make()
    sampler.load_state_dict(at(sampler, 1, 2))
    iter(sampler)  # without requests, it doesn't count
    first, second = iter(sampler), iter(sampler)
    assert [list(next(first)) for _ in range(2)] == expected[1][2:4]
    assert sampler.state_dict() == at(make(), 1, 4)
    assert next(second) == expected[2][0]
    assert sampler.state_dict() == at(make(), 2, 1)  # of the latest iterator
    assert lists(first) == expected[1][4:]
    assert sampler.state_dict() == at(make(), 2, 1)
    assert lists(second) == expected[2][1:]
    assert lists(sampler) == expected[3]


# States


@every_sampler
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_state_resumes_where_it_was_saved(make, world_size):
    ranks = {"rank": world_size - 1, "world_size": world_size}
    expected = epochs(make, 3, **ranks)
    sampler = make(**ranks)
    list(sampler)
    iterator = iter(sampler)
    for taken in range(len(expected[1]) + 2):
        state = sampler.state_dict()
        is_over = taken > len(expected[1])
        if taken > 0:
            assert state == at(make(**ranks), 1, None if is_over else taken)
            assert state["finished"] == is_over
        other = make(**ranks)
        other.load_state_dict(json.loads(json.dumps(state)))
        if taken > 0:
            assert other.state_dict() == state
        assert other.epoch == 1 + is_over
        rest = [] if is_over else expected[1][taken:]
        assert lists(copy.deepcopy(other)) == (expected[2] if is_over else rest)
        if not is_over:
            assert lists(other) == rest
        assert lists(other) == expected[2]
        next(iterator, None)


@every_sampler
def test_states_of_other_samplers(make):
    name = type(make()).__name__
    others = {"seed": make(seed=1)}
    if name != "ShuffleSampler":
        others["_crc32"] = make(data=np.roll(LENGTHS, 1))
    if name == "LengthBucketSampler":
        others |= {"lengths_crc": make(multiple_of=8), "lengths_crc32": make(max_length=9)}
    settings = {"batch_size": 2, "drop_last": True, "seq_length": 25, "max_tokens": 61}
    settings |= {"shuffle": False, "bucket_batches": 9, "num_samples": 29, "uneven": "keep"}
    for key, value in settings.items():
        if key in make().state_dict():
            others[key] = make(**{key: value})
    assert len(others) > 3
    for key, other in others.items():
        sampler = make()
        message = rf"^{name}: the state is from another sampler: .*{key}\w* is .* in the state and .* here"
        with pytest.raises(ValueError, match=message):
            sampler.load_state_dict(other.state_dict())
        sampler.set_epoch(3)  # the suggested fix
        assert len(list(sampler)) == len(sampler) > 0


BAD_STATES = [
    ({"planning": 0}, ValueError, "the state is from another sampler: planning is 0 in the state"),
    ({"epoch": -1}, ValueError, r"state\['epoch'\] must be at least 0, got -1"),
    ({"epoch": 0.5}, TypeError, r"state\['epoch'\] must be an integer, got 0\.5"),
    ({"consumed": -1}, ValueError, r"state\['consumed'\] must be at least 0, got -1"),
    ({"consumed": None}, TypeError, r"state\['consumed'\] must be an integer, got None"),
    ({"consumed": 99}, ValueError, r"state\['consumed'\] must be at most \d+, the size of epoch 0, got 99"),
]  # fmt: skip


@every_sampler
def test_bad_states(make):
    sampler = make()
    before = sampler.state_dict()
    for changed, error, message in BAD_STATES:
        with pytest.raises(error, match=f"^{type(sampler).__name__}: {message}"):
            sampler.load_state_dict(before | changed)
    with pytest.raises(TypeError, match="state must be a dict, got list"):
        sampler.load_state_dict([1])
    part = {key: before[key] for key in before if key not in ("epoch", "samples")}
    with pytest.raises(
        ValueError, match=r"a result of state_dict\(\), got one without epoch, samples"
    ):
        sampler.load_state_dict(part)
    assert sampler.state_dict() == before


# Loaders


@with_workers
def test_a_stateful_loader_resumes(make, workers):
    def new_loader():
        return StatefulDataLoader(
            ARRAYS, batch_sampler=make(), num_workers=workers, collate_fn=list
        )

    whole = new_loader()
    expected, following = list(whole), list(whole)
    for taken in (1, 0, len(expected) - 1, None)[: 1 if workers else None]:  # None: to the end
        loader = new_loader()
        list(itertools.islice(iter(loader), taken))
        resumed = new_loader()
        resumed.load_state_dict(copy.deepcopy(loader.state_dict()))
        if taken is not None:
            assert list(resumed) == expected[taken:]
        assert list(resumed) == following


@with_workers
def test_the_state_of_a_device_loader_counts_received_batches(make, workers):
    def new_loader(levels):
        loader = loader_of(make(), workers)
        for _ in range(levels):
            loader = pinfeed.DeviceLoader(loader, "cpu", prefetch=3)
        return loader

    expected = epochs(make, 4)
    loader = new_loader(1)
    list(loader)
    places = [(2, 2), (1, 0), (1, 1), (1, len(expected[1]))]
    for levels, taken in places[: 1 if workers else None]:
        loader.batch_sampler.set_epoch(1)
        loop = iter(loader)
        assert [next(loop) for _ in range(taken)] == expected[1][:taken]
        state = loader.state_dict()
        loop.close()
        assert loader.state_dict() == state
        resumed = new_loader(levels)
        resumed.load_state_dict(state)
        assert list(resumed) == expected[1][taken:]
        assert resumed.state_dict()["finished"]
        again = new_loader(levels)
        again.load_state_dict(resumed.state_dict())
        assert list(again) == list(resumed) == expected[2]
    loader.batch_sampler.set_epoch(3)
    assert loader.state_dict() == loader.batch_sampler.state_dict()
    assert list(loader) == expected[3]
    assert not hasattr(pinfeed.DeviceLoader(DataLoader(ARRAYS), "cpu"), "state_dict")


class Strict(Dataset[int]):
    """A dataset that accepts only Python integers, one at a time."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        assert type(index) is int
        return index * 10


@every_sampler
def test_any_dataset(make):
    expected = [[10 * i for i in batch] for batch in epochs(make, 1)[0]]
    arrays = ArrayDataset(np.arange(COUNT) * 10)
    for dataset in (Strict(), Subset(Strict(), range(COUNT)), arrays, Subset(arrays, range(COUNT))):
        loader = DataLoader(dataset, batch_sampler=make())
        assert [batch.tolist() for batch in loader] == expected


# Batches


@every_sampler
def test_a_batch_is_small_and_works_with_any_dataset(make):
    pandas = pytest.importorskip("pandas")
    for batch in make():
        copied = pickle.loads(pickle.dumps(batch))
        assert copied == batch == list(batch) == batch.tolist()
        assert copied.epoch == 0
        assert (copied.packing is None) == (batch.packing is None)
        if batch.packing is None:
            numbers = 1 if batch.copies is None else 2
            assert len(pickle.dumps(batch)) < 250 * numbers + 8 * numbers * len(batch)
        indices = np.asarray(batch)
        assert indices.dtype == np.int64
        assert {type(index) for index in batch} == {int}
        squares = np.arange(COUNT) ** 2
        assert squares[batch].tolist() == torch.from_numpy(squares)[batch].tolist()
        assert pandas.Series(squares).iloc[batch].tolist() == [index**2 for index in batch]
        assert batch[0] == indices[0]
        assert (batch[1:3], batch[1:3].epoch) == (indices[1:3].tolist(), 0)


@every_sampler
def test_as_sampler_instead_of_batch_sampler(make):
    for dataset in (
        [*range(COUNT)],
        ARRAYS,
        IndexedDataset(range(COUNT)),
        Subset(ARRAYS, range(COUNT)),
    ):
        for drop_last in (False, True):
            loader = DataLoader(dataset, 4, sampler=make(), drop_last=drop_last)
            with pytest.raises(TypeError, match=r"DataLoader.* batch_sampler="):
                next(iter(loader))
    # torch's bulk loading:
    loader = DataLoader(ARRAYS, batch_size=None, sampler=make(), collate_fn=Collate())
    assert [batch["index"].tolist() for batch in loader] == lists(make())


# Arguments


BAD = [
    ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ({"seed": None}, TypeError, "seed must be an integer, got None"),
    ({"seed": 1.5}, TypeError, r"seed must be an integer, got 1\.5"),
    ({"rank": 0}, ValueError, "rank and world_size must both be given, or neither, got rank=0 and"),
    ({"world_size": 2}, ValueError, "rank and world_size must both be given, or neither, got rank=None"),
    ({"rank": 2, "world_size": 2}, ValueError, "rank must be below world_size=2, got 2"),
    ({"rank": -1, "world_size": 2}, ValueError, "rank must be at least 0, got -1"),
    ({"rank": 0, "world_size": 0}, ValueError, "world_size must be at least 1, got 0"),
    ({"rank": True, "world_size": 2}, TypeError, "rank must be an integer, got True"),
    ({"rank": 0, "world_size": 2.0}, TypeError, "world_size must be an integer"),
    ({"shuffle": 1}, TypeError, "shuffle must be True or False, got 1"),
    ({"drop_last": "no"}, TypeError, "drop_last must be True or False, got 'no'"),
    ({"replacement": None}, TypeError, "replacement must be True or False, got None"),
    ({"uneven": "none"}, ValueError, r"uneven must be one of \('repeat', 'drop', 'keep'\), got 'none'"),
    ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
    ({"batch_size": 2.0}, TypeError, r"batch_size must be an integer, got 2\.0"),
    ({"batch_size": np.True_}, TypeError, "batch_size must be an integer, got np.True_"),
]  # fmt: skip


@every_sampler
@pytest.mark.parametrize(("changed", "error", "message"), BAD)
def test_bad_arguments(make, changed, error, message):
    kind = type(make())
    if not {*changed} <= {*kind.__init__.__annotations__}:
        with pytest.raises(TypeError, match=rf"^{kind.__name__}: got an unknown argument"):
            make(**changed)
    else:
        with pytest.raises(error, match=f"^{kind.__name__}: {message}"):
            make(**changed)


@every_sampler
def test_another_sampler_instead_of_data(make):
    """Lightning recreates samplers for its ranks, which must raise."""
    other = torch.utils.data.DistributedSampler(range(COUNT), 2, 0)
    hint = "got a DistributedSampler.*use_distributed_sampler=False"
    with pytest.raises(TypeError, match=f"^{type(make()).__name__}: .*{hint}"):
        make(data=other)
    sampler = make()
    sampler.sampler.set_epoch(3)  # like trainers that support torch's batch samplers
    assert sampler.epoch == 3


@every_sampler
def test_repr_shows_the_settings(make):
    sampler = make(seed=4)
    sampler.set_epoch(7)
    result = repr(sampler)
    assert result.startswith(f"{type(sampler).__name__}({COUNT} samples, ")
    assert result.endswith("rank=0, epoch=7)")
    position_and_data = ("epoch", "consumed", "finished", "samples", "planning")
    for name, value in sampler.state_dict().items():
        if name not in position_and_data and "crc" not in name:
            assert f"{name}={value!r}" in result


# One number per sample: lengths, weights, labels.

COLUMNS = {name: SAMPLERS[name] for name, (_, data, _) in DATA.items() if data is not COUNT}
LABELS = LENGTHS % 3
COLUMNS["balanced"] = maker(pinfeed.samplers.WeightedSampler.balanced, LABELS, {"batch_size": 7})
every_column = pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)


@every_column
def test_types_of_columns(make, tmp_path):
    column = LABELS if make is COLUMNS["balanced"] else LENGTHS
    expected = epochs(make, 1)
    np.save(tmp_path / "column.npy", column.astype(np.uint16))
    wide = np.zeros((COUNT, 3), int)
    wide[:, 1] = column
    for given in (
        column.tolist(),
        tuple(column),
        wide[:, 1],
        column[::-1].copy()[::-1],
        column.astype(">i4"),
        column.astype(np.uint64),
        np.load(tmp_path / "column.npy", mmap_mode="r"),
        torch.from_numpy(column),
        torch.from_numpy(wide)[:, 1],
        torch.from_numpy(column).to(torch.int16),
    ):
        assert epochs(make, 1, data=given) == expected
    if "max_tokens" in make().state_dict() or "seq_length" in make().state_dict():
        ragged = pinfeed.RaggedArray(np.zeros(column.sum()), np.append(0, np.cumsum(column)))
        for given in (ragged, ragged.split(20), SimpleNamespace(lengths=torch.from_numpy(column))):
            assert epochs(make, 1, data=given) == expected


@every_column
@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ([], ValueError, "must have one item per sample, got none"),
        (np.empty(0, np.int32), ValueError, "must have one item per sample, got none"),
        (np.ones((1, 2), int), ValueError, r"must be 1-D, got shape \(1, 2\)"),
        (5, ValueError, r"must be 1-D, got shape \(\)"),
        (torch.ones(2, dtype=torch.bfloat16), TypeError, r"1-D \w+ in CPU memory"),
        (torch.ones(2, requires_grad=True), TypeError, r"1-D \w+ in CPU memory"),
        (torch.ones(2, device="meta"), TypeError, r"1-D \w+ in CPU memory"),
        (torch.ones(2).to_sparse(), TypeError, r"1-D \w+ in CPU memory"),
        ([1, None], TypeError, "must be (integers|numbers|of one sortable type)"),
    ],
)
def test_bad_columns(make, column, error, message):
    with pytest.raises(error, match=f"^{type(make()).__name__}.*: .*{message}"):
        make(data=column)


@every_column
def test_the_column_is_read_once(make):
    column = np.array(LABELS if make is COLUMNS["balanced"] else LENGTHS)
    sampler = make(data=column)
    column[:] = 1
    assert lists(sampler) == epochs(make, 1)[0]
