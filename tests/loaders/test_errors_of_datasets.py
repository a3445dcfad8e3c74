"""Exceptions of a user's dataset name the sample that pinfeed was fetching."""

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

import pinfeed
from samples import FrozenError

COUNT, BAD = 40, 23


class OneByOne(Dataset):
    kind = KeyError

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index == BAD:
            raise self.kind("damaged")
        return np.full(2, index)


class Batched(OneByOne):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Rows(pinfeed.ArrayDataset):
    __getitem__ = OneByOne.__getitem__
    __getitems__ = Batched.__getitems__
    kind = KeyError


class Frozen(OneByOne):
    kind = FrozenError


def loader_of(dataset, **options):
    sampler = pinfeed.samplers.ShuffleSampler(COUNT, 10, shuffle=False)
    return DataLoader(pinfeed.IndexedDataset(dataset), batch_sampler=sampler, **options)


NOTE = f"IndexedDataset: raised by OneByOne for sample {BAD}"
BATCH = "IndexedDataset: raised by {} for one of samples [20, 21, 22, 23, 24, 25, ...]"
CASES = {
    "one by one": (loader_of(OneByOne()), NOTE),
    "a batch": (loader_of(Batched()), BATCH.format("Batched")),
    "from_numpy": (pinfeed.from_numpy(Rows(np.arange(COUNT)), 10, device="cpu"), BATCH.format("Rows")),
}  # fmt: skip


@pytest.mark.parametrize(("loader", "note"), CASES.values(), ids=CASES)
def test_the_note_names_the_sample(loader, note):
    for _ in range(2):  # epochs
        batches = iter(loader)
        assert [len(next(batches)) for _ in range(2)] == [10, 10]
        with pytest.raises(KeyError, match="damaged") as caught:
            next(batches)
        assert note in caught.value.__notes__


def test_one_sample_per_worker_and_an_error_that_rejects_notes():
    with pytest.raises(KeyError, match="damaged") as caught:
        pinfeed.IndexedDataset(OneByOne())[BAD]
    assert caught.value.__notes__ == [NOTE]
    with pytest.raises(KeyError, match=NOTE):
        list(loader_of(OneByOne(), num_workers=1))
    with pytest.raises(FrozenError):
        list(loader_of(Frozen()))
