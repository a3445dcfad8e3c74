"""torchdata's StatefulDataLoader over datasets: it resumes after any batch, and rejects other data."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

from pinfeed import ArrayDataset, Collate, DeviceLoader, StreamDataset


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_rows_resume_with_the_remaining_batches(workers, ahead):
    def new_loader():
        dataset = ArrayDataset({"x": np.arange(540.0).reshape(90, 6), "i": np.arange(90)})
        # A generator shared with the loader would be in another state in the next epoch: without
        # workers, torchdata 0.11 doesn't draw the workers' seed from it again.
        sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(7))
        options = {"sampler": sampler, "collate_fn": Collate(), "num_workers": workers}
        loader = StatefulDataLoader(dataset, 4, **options)
        return DeviceLoader(loader, "cpu", prefetch=3) if ahead else loader

    loader = new_loader()
    whole = [str([*loader]) for _ in range(2)]
    batches, state = [], None
    for epoch, taken in ((0, 9), (0, 4), (1, 8))[: 1 if workers else None]:
        loader = new_loader()
        if state is not None:
            loader.load_state_dict(state)
        if epoch == 1:
            assert str([*batches, *loader]) == whole[0]
            batches = []
        batches += itertools.islice(loader, taken)
        state = pickle.loads(pickle.dumps(loader.state_dict()))
    loader = new_loader()
    loader.load_state_dict(state)
    assert str([*batches, *loader]) == whole[epoch]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda count: ArrayDataset(np.arange(count)), "of 20 samples, but this one has 19"),
        (
            lambda count: StreamDataset(range(count)),
            "stream: samples is 20 in the state and 19 here",
        ),
    ],
)
def test_another_dataset(make, message, workers):
    begun, same, other = (
        StatefulDataLoader(make(count), 4, num_workers=workers) for count in (20, 20, 19)
    )
    next(iter(begun))
    same.load_state_dict(begun.state_dict())
    assert sum(len(batch) for batch in same) == 16
    other.load_state_dict(begun.state_dict())
    with pytest.raises(ValueError, match=message):
        list(other)


@pytest.mark.parametrize("state", [5, {}, {"samples": None}])
def test_states_that_are_not_of_a_dataset(state):
    with pytest.raises(ValueError, match=r"the state is from a dataset of .* but this one has 3"):
        ArrayDataset(np.arange(3)).load_state_dict(state)
