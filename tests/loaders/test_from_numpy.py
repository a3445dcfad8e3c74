"""pinfeed.from_numpy equals a loader built by hand."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, random_split

import pinfeed
from messages import check
from pinfeed.samplers import ShuffleSampler
from samples import assert_same

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(50)
CROP = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=pinfeed.augment.RandomCrop(4))
TOKENS = pinfeed.RaggedArray.from_sequences([list(range(n % 7)) for n in range(50)])


def batches(loader):
    return [batch.tolist() for batch in loader]


def by_hand(arrays, batch_size, *, shuffle=False, fields=None, **options):
    dataset = pinfeed.ArrayDataset(arrays)
    return DataLoader(dataset, batch_size, shuffle, collate_fn=pinfeed.Collate(fields), **options)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_equals_the_loader_built_by_hand(workers, drop_last):
    arrays = {"image": IMAGES, "label": LABELS, "tokens": TOKENS}
    tokens = pinfeed.Pad(pad_value=-1, lengths="lengths")
    options = {"shuffle": True, "fields": {"image": pinfeed.Image(0.5, 0.25), "tokens": tokens}}
    options |= {"drop_last": drop_last, "num_workers": workers}
    if workers:
        options["multiprocessing_context"] = "fork"
    loader, expected = (
        make(arrays, 16, **options, **more, generator=torch.Generator().manual_seed(3))
        for make, more in ((pinfeed.from_numpy, {"device": "cpu"}), (by_hand, {}))
    )
    assert len(loader) == len(expected) == (3 if drop_last else 4)
    for batch, other in zip(loader, expected, strict=True):
        assert list(batch) == ["image", "label", "tokens", "lengths"]
        assert_same(batch, other)
    again = torch.cat([batch["label"] for batch in loader]).tolist()  # in another order
    assert len(again) == len({*again}) == (48 if drop_last else 50)


def test_plain_arrays_and_attributes():
    loader = pinfeed.from_numpy(LABELS, 20, device="cpu")
    assert batches(loader) == [[*range(20)], [*range(20, 40)], [*range(40, 50)]]
    assert isinstance(loader.dataset, pinfeed.ArrayDataset)
    assert isinstance(loader.batch_sampler, ShuffleSampler)
    assert loader.batch_sampler.batch_size == 20
    assert loader.num_workers == 0


# Orders.

# These start once; nothing else happens in this process during their loops.
WORKERS = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}


def shuffled(count=40, **options):
    return pinfeed.from_numpy(np.arange(count), 4, shuffle=True, device="cpu", **options)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    "options", [{"seed": 7}, {"seed": 7, "rank": 1, "world_size": 3}, {"rank": 1, "world_size": 2}]
)
def test_orders_with_a_seed_or_rank_equal_the_sampler(workers, drop_last, options):
    uneven = "drop" if drop_last else "repeat"
    sampler = ShuffleSampler(41, 4, uneven=uneven, drop_last=drop_last, **options)
    loader = shuffled(41, drop_last=drop_last, **options, **(WORKERS if workers else {}))
    assert len(loader) == len(sampler)
    for epoch in (0, 1, 2, 9, 10, 1):
        torch.rand(1)  # advances the default generator
        if epoch == 9:
            loader.batch_sampler.set_epoch(9)
        if epoch == 1:
            loader.batch_sampler.sampler.set_epoch(1)
        sampler.set_epoch(epoch)
        assert batches(loader) == batches(sampler)


def test_orders_without_a_seed_follow_from_the_default_generator():
    loader = shuffled()
    torch.manual_seed(3)
    first, second = batches(loader), batches(loader)
    assert first != second
    torch.manual_seed(3)
    assert [batches(shuffled()), batches(loader)] == [first, second]
    loader.batch_sampler.set_epoch(5)
    sampler = ShuffleSampler(40, 4, seed=0)
    sampler.set_epoch(5)
    assert batches(loader) == batches(sampler)


def test_crops_without_a_seed_do_not_depend_on_draws_of_the_loop():
    fields = pinfeed.Image(augment=pinfeed.augment.RandomCrop(2))

    def pixels(draws):
        torch.manual_seed(3)
        batches = []
        for batch in pinfeed.from_numpy(IMAGES, 4, shuffle=True, fields=fields, device="cpu"):
            torch.rand(draws)
            batches.append(batch)
        return torch.cat(batches)

    expected = pixels(0)
    for draws in range(1, 9):
        assert torch.equal(pixels(draws), expected)


@pytest.mark.parametrize(("count", "workers"), [(1, 0), (3, 0), (10, 0), (11, 0), (11, 2)])
def test_a_loop_without_a_seed_resumes_where_a_state_was_saved(count, workers):
    """With a seed, it is a `ShuffleSampler`."""
    options = WORKERS if workers else {}
    loader = shuffled(**options)
    batches(loader)
    expected = iter(loader)
    for _ in range(count):
        next(expected, None)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = batches(expected)
    assert loader.state_dict() == state | {"consumed": 40, "finished": True}
    batches(loader)
    for resumed in (shuffled(**options), loader):
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        if count <= 10:
            assert batches(resumed) == rest


def test_ranks_come_from_the_environment(monkeypatch):
    loader = pinfeed.from_numpy(np.arange(8), 2, device="cpu")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert batches(loader) == [[2, 3], [6, 7]]
    assert len(loader) == 2
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(ValueError, match="from_numpy: expected integers 0 <= RANK < WORLD_SIZE"):
        next(iter(loader))


@pytest.mark.parametrize("shuffle", [True, False])
def test_processes_of_one_rank_get_equal_batches(shuffle, monkeypatch):
    """Like ranks of a tensor-parallel group, which have one rank number and separate generators."""
    images = np.random.default_rng(0).integers(0, 256, (10, 9, 9, 1), np.uint8)

    def process(number, **options):
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setenv("WORLD_SIZE", "4")
        torch.manual_seed(number)
        options |= {"shuffle": shuffle, "fields": (CROP, None), "device": "cpu"}
        loader = pinfeed.from_numpy((images, np.arange(10)), 4, **options)
        loops = [list(loader) for _ in range(2)]
        rows = [sorted(torch.cat([row for _, row in loop]).tolist()) for loop in loops]
        return rows, str(loops)

    for world_size in (1, 2):
        for rank in range(world_size):
            ranks = {"rank": rank, "world_size": world_size}
            first, second = process(0, **ranks), process(3, **ranks)
            assert first == second
            assert world_size > 1 or first[0] == [list(range(10))] * 2
    if shuffle:
        generator = torch.Generator()
        with pytest.raises(ValueError, match="generator shuffles"):
            process(0, rank=0, world_size=1, generator=generator)
        process(0, rank=0, world_size=1, seed=3)  # the fix


def test_rows_that_a_subclass_changes_keep_their_indices():
    """So their random draws follow from a seed too."""

    class Doubled(pinfeed.ArrayDataset):
        def __getitems__(self, indices):
            return [2 * self[index] for index in indices]

    images = np.random.default_rng(0).integers(0, 99, (40, 9, 9, 1), np.uint8)
    options = {"shuffle": True, "seed": 1, "fields": CROP, "device": "cpu"}
    changed = list(pinfeed.from_numpy(Doubled(images), 10, **options))
    assert_same(changed, [2 * batch for batch in pinfeed.from_numpy(images, 10, **options)])


def test_a_table_and_a_parquet_file(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"x": [1.0, 2.0, 3.0], "y": [1, 2, 3]})
    path = tmp_path / "table.parquet"
    parquet.write_table(table, path)
    for source in (table, path, str(path)):
        loader = pinfeed.from_numpy(source, 2, device="cpu")
        rows = [(batch["x"].tolist(), batch["y"].tolist()) for batch in loader]
        assert rows == [([1, 2], [1, 2]), ([3], [3])]


def test_parts_of_datasets():
    order = [7, 3, 11, 0]
    tensors = TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(LABELS))
    arrays = pinfeed.ArrayDataset((IMAGES, LABELS))
    (part, _) = random_split(arrays, [4, len(arrays) - 4], torch.Generator().manual_seed(0))
    for data, indices in (
        (tensors, range(len(tensors))),
        (arrays.select(order), order),
        (Subset(arrays, order), order),
        (Subset((IMAGES, LABELS), order), order),
        (Subset(Subset(tensors, order), [3, 1]), [0, 3]),
        (part, part.indices),
    ):
        images, labels = next(iter(pinfeed.from_numpy(data, len(IMAGES), device="cpu")))
        assert labels.tolist() == LABELS[list(indices)].tolist()
        assert np.array_equal(images, IMAGES[list(indices)])


class TenTimes(Subset):
    def __getitem__(self, index):
        return super().__getitem__(index) * 10

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Negative(TensorDataset):
    def __getitem__(self, index):
        return -super().__getitem__(index)[0]


def test_datasets_with_custom_samples_raise():
    tensors = TensorDataset(torch.arange(6))
    for dataset in (
        TenTimes(pinfeed.ArrayDataset(np.arange(6)), [1, 2]),
        Negative(*tensors.tensors),
    ):
        with pytest.raises(TypeError, match=r"has its own __getitem__, .* write DataLoader\("):
            pinfeed.from_numpy(dataset, 2)
        loader = DataLoader(dataset, 2, collate_fn=pinfeed.Collate())
        assert next(iter(loader)).tolist() == [int(dataset[0]), int(dataset[1])]
    both = ConcatDataset([tensors, tensors])
    with pytest.raises(TypeError, match=r"got a ConcatDataset; .* pinfeed.ConcatArray\("):
        pinfeed.from_numpy(both, 2)
    rows = pinfeed.from_numpy(pinfeed.ConcatArray([np.arange(6)] * 2), 12, device="cpu")
    assert next(iter(rows)).tolist() == [int(sample) for (sample,) in both]


OPTIONS = [
    ({"shuffle": 1}, TypeError, "shuffle must be True or False, got 1"),
    ({"drop_last": None}, TypeError, "drop_last must be True or False, got None"),
    ({"rank": 0}, ValueError, "rank and world_size must both be given, or neither"),
    ({"rank": 2, "world_size": 2}, ValueError, "rank must be below world_size=2, got 2"),
    ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ({"seed": "1"}, TypeError, "seed must be an integer, got '1'"),
    ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
    ({"batch_size": None}, TypeError, "batch_size must be an integer, got None"),
    ({"batch_size": 51, "drop_last": True}, ValueError, "50 samples are too few for a batch of 51"),
    ({"seed": 1, "shuffle": True, "generator": torch.Generator()},
        ValueError, "expected seed or generator, got seed=1 and a generator; leave one out"),
    ({"shuffle": True, "generator": torch.Generator(), "rank": 1, "world_size": 2},
        ValueError, "generator shuffles the rows of one process, but this is one of 2; pass seed instead"),
    *(({name: None}, TypeError, f"{name} is not an option here")
        for name in ("dataset", "collate_fn", "sampler", "batch_sampler", "indices")),
]  # fmt: skip
ARRAYS = [
    ({"x": LABELS, "y": LABELS[:3]}, ValueError, "same length"),
    ({"x": "text.npy"}, FileNotFoundError, "text.npy"),
    (3, TypeError, "expected an ndarray"),
    (np.ma.array([1, 2], mask=[0, 1]), TypeError, "got one with a mask, which would be lost"),
    (LABELS[:0], ValueError, "from_numpy: arrays must have at least one row, got none"),
    (Subset(LABELS, []), ValueError, "must have at least one row, got a Subset of no indices"),
]


@pytest.mark.parametrize(
    ("arrays", "options", "error", "words"),
    [(LABELS, given, error, f"from_numpy: {words}") for given, error, words in OPTIONS]
    + [(arrays, {}, error, words) for arrays, error, words in ARRAYS],
)
def test_bad_arguments(arrays, options, error, words):
    check(lambda: pinfeed.from_numpy(arrays, **{"batch_size": 4} | options), error, words)


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_state_with_another_drop_last_names_only_that(drop_last):
    state = pinfeed.from_numpy(np.arange(9), 2, shuffle=True, drop_last=drop_last).state_dict()
    other = pinfeed.from_numpy(np.arange(9), 2, shuffle=True, drop_last=not drop_last)
    message = (
        f"another sampler: drop_last is {drop_last} in the state and {not drop_last} here; create"
    )
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state)
