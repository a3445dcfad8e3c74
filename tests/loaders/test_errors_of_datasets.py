"""Exceptions of a user's dataset name the sample that a class of pinfeed was fetching."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import pinfeed
from samples import FrozenError

COUNT, BAD = 40, 23


class OneByOne(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index == BAD:
            raise KeyError("damaged")
        return np.full(2, index)


class Batched(OneByOne):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Frozen(OneByOne):
    def __getitem__(self, index):
        raise FrozenError(index)


class Rows(pinfeed.ArrayDataset):
    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def __getitem__(self, index):
        if index == BAD:
            raise KeyError("damaged")
        return super().__getitem__(index)


def loader_of(dataset, **options):
    sampler = pinfeed.samplers.ShuffleSampler(COUNT, 10, shuffle=False)
    return DataLoader(pinfeed.IndexedDataset(dataset), batch_sampler=sampler, **options)


def rows(**options):
    return pinfeed.from_numpy(Rows(np.arange(COUNT)), 10, device="cpu", **options)


NOTE = f"IndexedDataset: raised by OneByOne for sample {BAD}"
BATCH = "IndexedDataset: raised by {} for one of samples 20, 21, 22, 23, 24, 25, 26, 27, ..."
CASES = {
    "one by one": (lambda: loader_of(OneByOne()), NOTE),
    "a batch": (lambda: loader_of(Batched()), BATCH.format("Batched")),
    "from_numpy": (rows, BATCH.format("Rows")),
}


@pytest.mark.parametrize(("make", "note"), CASES.values(), ids=CASES)
def test_the_note_names_the_sample(make, note):
    loader = make()
    for _ in range(2):  # epochs
        batches = iter(loader)
        assert [len(next(batches)) for _ in range(2)] == [10, 10]
        with pytest.raises(KeyError, match="damaged") as caught:
            next(batches)
        assert note in caught.value.__notes__


def test_one_sample():
    with pytest.raises(KeyError, match="damaged") as caught:
        pinfeed.IndexedDataset(OneByOne())[BAD]
    assert caught.value.__notes__ == [NOTE]


def test_in_a_worker():
    loader = loader_of(OneByOne(), num_workers=1)
    with pytest.raises(KeyError, match=NOTE):
        list(loader)


def test_an_error_that_takes_no_note():
    with pytest.raises(FrozenError):
        list(loader_of(Frozen()))


def test_rows_that_a_subclass_changes_keep_their_indices():
    """So what is random follows from a seed for them too."""

    class Doubled(pinfeed.ArrayDataset):
        def __getitems__(self, indices):
            return [2 * self[index] for index in indices]

    images = np.random.default_rng(0).integers(0, 99, (COUNT, 9, 9, 1), np.uint8)
    crop = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=pinfeed.augment.RandomCrop(4))
    options = {"shuffle": True, "seed": 1, "fields": crop, "device": "cpu"}
    changed = list(pinfeed.from_numpy(Doubled(images), 10, **options))
    plain = list(pinfeed.from_numpy(images, 10, **options))
    assert all(map(torch.equal, changed, [2 * batch for batch in plain]))
