"""The epoch of a batch from the sampler to `Collate`, also in workers, and the warning if it is lost."""

import sys
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, WeightedRandomSampler

import pinfeed
from crops import ARRAYS, COUNT, DATASETS, VIEW, Photos, by_index, crops_of_epochs, new_collate
from pinfeed import Collate, Image, IndexedDataset
from pinfeed.samplers import ShuffleSampler, WeightedSampler
from test_every_sampler import SAMPLERS


def assert_epochs(loops, crops):
    for seen, expected in zip(loops, crops, strict=True):
        assert seen == {index: expected[index] for index in seen}
        assert len(seen) > COUNT // 3


@pytest.mark.parametrize(
    ("kind", "workers", "method"),
    [
        *((kind, 0, None) for kind in DATASETS),
        *((kind, 2, "fork") for kind in DATASETS),
        ("indexed", 1, "spawn"),
    ],
)
def test_the_epoch_travels_with_the_indices(kind, workers, method):
    crops = crops_of_epochs()
    for make in [*SAMPLERS.values()][: workers or None]:  # starting workers is slow
        loader = DataLoader(
            DATASETS[kind],
            batch_sampler=make(),
            collate_fn=new_collate(),
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context=method,
        )
        assert_epochs((by_index(loader) for _ in range(4)), crops)
        loader.batch_sampler.set_epoch(2)
        assert_epochs((by_index(loader) for _ in range(2)), crops[2:])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subset_passes_the_epoch_on(workers):
    """A ``Subset`` of `random_split`, and a dataset without ``__getitems__`` whose samples have a key."""
    crops = crops_of_epochs()
    half = Subset(ARRAYS, range(COUNT // 2))
    for dataset, key in (
        (half, None),
        (Subset(half, range(COUNT // 2)), None),
        (Photos(), "index"),
    ):
        loader = DataLoader(
            dataset,
            batch_sampler=ShuffleSampler(dataset, 7),
            collate_fn=Collate(
                {"image": Image(dtype=torch.uint8, augment=VIEW)}, seed=0, id_key=key
            ),
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        assert_epochs((by_index(loader) for _ in range(3)), crops[:3])


def test_an_epoch_applies_to_one_batch():
    """A batch without an epoch doesn't get the epoch of the previous batch."""
    half = Subset(ARRAYS, range(COUNT // 2))
    collate = new_collate()
    sampler = ShuffleSampler(half, 7)
    sampler.set_epoch(2)
    next(iter(DataLoader(half, batch_sampler=sampler, collate_fn=collate)))
    plain = next(iter(DataLoader(half, 7, collate_fn=collate)))
    expected = crops_of_epochs()[0]
    assert by_index([plain]) == {index: expected[index] for index in range(7)}


# Repeated samples within an epoch

COPIED = torch.tensor([1.0] * (COUNT - 1) + [50.0]).tolist()


def views_of_copies(dataset, workers=0, state=None, **options):
    sampler = WeightedSampler(COPIED, **{"batch_size": 9, "num_samples": 100, "seed": 1} | options)
    if state is not None:
        sampler.load_state_dict(state)
    loader = DataLoader(
        dataset, batch_sampler=sampler, collate_fn=new_collate(), num_workers=workers
    )
    batches = list(loader)
    return [
        (int(index), image.tolist())
        for batch in batches
        for index, image in zip(batch["index"], batch["image"], strict=True)
    ]


@pytest.mark.parametrize(
    ("dataset", "workers"),
    [
        *((dataset, 0) for dataset in (*DATASETS.values(), Subset(ARRAYS, range(COUNT)))),
        (ARRAYS, 2),
    ],
)
def test_each_copy_of_a_sample_has_its_own_draws(dataset, workers):
    seen = views_of_copies(dataset, workers)
    assert len(seen) == 100
    of_last = [image for index, image in seen if index == COUNT - 1]
    assert len(of_last) > 40
    views = {str(image) for image in of_last}
    # Crops of 8×8 within 14×14, mirrored or not: some are drawn twice.
    assert len(views) > 0.6 * len(of_last)
    assert by_index_of(seen) == {i: crops_of_epochs()[0][i] for i in by_index_of(seen)}
    # On other ranks, in other batches, and after resuming it is the same one.
    ranks = [views_of_copies(dataset, rank=rank, world_size=2, batch_size=5) for rank in range(2)]
    assert sorted(ranks[0] + ranks[1]) == sorted(seen)
    sampler = WeightedSampler(COPIED, batch_size=9, num_samples=100, seed=1)
    batches = iter(sampler)
    for _ in range(4):
        next(batches)
    assert views_of_copies(dataset, state=sampler.state_dict()) == seen[36:]


def by_index_of(seen):
    result = {}
    for index, image in seen:
        result.setdefault(index, image)
    return result


# Loaders without any epoch


def warned(loops, capfd):
    """Returns the number of warnings about a second pass, here or in workers."""
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
        loops()
    text = capfd.readouterr().err
    assert ("Collate.set_epoch" in text) == ("repeat in epoch 0" in text)
    return int(text.count("Collate.set_epoch"))


HALF = Subset(ARRAYS, range(COUNT // 2))
# Datasets, and the key of an integer. The length of the last ones is unknown to Collate.
WATCHED = {name: (dataset, None) for name, dataset in DATASETS.items()}
WATCHED |= {"key": (Photos(), "index"), "plain subset": (HALF, None)}


@pytest.mark.parametrize(
    ("kind", "workers", "persistent", "shuffle"),
    [
        *((kind, 0, False, shuffle) for kind in WATCHED for shuffle in (True, False)),
        *(("rows", 2, False, True), ("indexed", 2, True, False), ("subset", 2, True, True)),
        *(("key", 2, False, True), ("plain subset", 2, True, True)),
    ],
)
def test_the_second_pass_over_an_epoch_warns_once(kind, workers, persistent, shuffle, capfd):
    dataset, key = WATCHED[kind]

    def new_loader(**options):
        collate = Collate({"image": Image(dtype=torch.uint8, augment=VIEW)}, seed=0, id_key=key)
        options |= {"num_workers": workers, "persistent_workers": persistent}
        return DataLoader(options.pop("dataset", dataset), collate_fn=collate, **options)

    def passes(loader, count, epochs=None):
        for _, epoch in zip(range(count), epochs or [None] * count, strict=True):
            if epoch is not None:
                loader.collate_fn.set_epoch(epoch)
            list(loader)

    loader = new_loader(batch_size=7, shuffle=shuffle)
    torch.manual_seed(
        0
    )  # the probed sample must not be last in the pass, or in the first batch again
    if workers == 0:  # which prefetch
        next(iter(loader))  # reading the first batch alone is not a pass
    assert warned(lambda: passes(loader, 1), capfd) == 0
    if kind in DATASETS:
        assert warned(lambda: passes(loader, 1, [0]), capfd) == 0
    assert warned(lambda: passes(loader, 2), capfd) == 1
    assert warned(lambda: passes(loader, 2), capfd) == 0
    if workers == 0:  # the warning's fixes
        loader = new_loader(batch_size=7, shuffle=shuffle)
        assert warned(lambda: passes(loader, 3, range(3)), capfd) == 0
        sampler = ShuffleSampler(dataset, 7)
        loader = new_loader(dataset=IndexedDataset(dataset), batch_sampler=sampler)
        assert warned(lambda: passes(loader, 3), capfd) == 0


def test_loops_that_are_not_a_second_pass(capfd):
    collate = new_collate()
    training = DataLoader(ARRAYS, 7, shuffle=True, collate_fn=collate)
    validation = DataLoader(IndexedDataset(Subset(Photos(), range(9))), 3, collate_fn=collate)
    drawn = WeightedRandomSampler([1.0] * COUNT, COUNT)
    with_replacement = DataLoader(ARRAYS, 7, sampler=drawn, collate_fn=collate)

    def loops():
        for epoch in range(3):
            collate.set_epoch(epoch)
            list(training)
            list(validation)
        for epoch in range(20):
            collate.set_epoch(epoch)
            list(with_replacement)
        for unseeded in (new_collate(None), Collate(seed=0)):
            for _ in range(3):
                list(DataLoader(ARRAYS, 7, collate_fn=unseeded))

    assert warned(loops, capfd) == 0


def test_indices_of_an_earlier_loop_are_ignored():
    """A direct call uses the epoch that was set, not the epoch of a batch read before."""

    def collated():
        collate = new_collate()
        collate.set_epoch(3)
        return collate(ARRAYS.__getitems__(range(7)))["image"]

    expected = collated()
    for batch in ShuffleSampler(ARRAYS, 7, drop_last=True):
        assert len([*batch]) == 7
    del batch
    assert torch.equal(collated(), expected)


IMAGES = {"image": np.random.default_rng(0).integers(0, 256, (32, 8, 8, 3), np.uint8)}


def views(loader):
    """Returns the number of distinct crops in each batch."""
    return [len({*map(bytes, batch["image"].numpy())}) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_uncounted_copies_warn_once(workers, capfd):
    crop = pinfeed.Image(augment=pinfeed.augment.RandomResizedCrop(4), dtype=torch.uint8)
    collate = pinfeed.Collate({"image": crop}, seed=0)
    weights = [1.0] + [1e-9] * 31
    dataset = pinfeed.ArrayDataset(IMAGES)
    options = {"num_workers": workers, "collate_fn": collate}
    copied = DataLoader(dataset, 16, sampler=WeightedRandomSampler(weights, 32), **options)
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
        assert [views(copied), views(copied)] == [[1, 1]] * 2
    text = capfd.readouterr().err
    assert text.count("15 samples of a batch are copies of other samples") == 1
    assert "WeightedSampler, which counts copies, as batch_sampler" in text
    counted = pinfeed.samplers.WeightedSampler(weights, batch_size=16, num_samples=32, seed=0)
    assert min(views(DataLoader(dataset, batch_sampler=counted, **options))) > 8


@pytest.mark.parametrize("sampler", ["random", "distributed", "own"])
def test_ordinary_samplers_give_no_warning(sampler, recwarn):
    crop = pinfeed.Image(augment=pinfeed.augment.RandomResizedCrop(4), dtype=torch.uint8)
    collate = pinfeed.Collate({"image": crop}, seed=0)
    dataset = pinfeed.ArrayDataset(IMAGES)
    given = {
        "random": torch.utils.data.RandomSampler(dataset),
        "distributed": torch.utils.data.DistributedSampler(dataset, 3, 1),
        "own": [3, *range(15)],  # the first samples fill the last batch
    }
    views(DataLoader(dataset, 16, sampler=given[sampler], collate_fn=collate))
    assert [str(warning.message) for warning in recwarn] == []
