"""Jobs that save after a batch and resume with the remaining batches."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

from pinfeed import ArrayDataset, Collate, DeviceLoader, Pad, RaggedArray, StreamDataset
from pinfeed.samplers import LengthBucketSampler


def array_loader(**options):
    dataset = ArrayDataset({"x": np.arange(540.0).reshape(90, 6), "i": np.arange(90)})
    # A generator shared with the loader would be in another state in the next epoch: without workers,
    # torchdata 0.11 doesn't draw the workers' seed from it again.
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(7))
    loader = StatefulDataLoader(dataset, 4, sampler=sampler, collate_fn=Collate(), **options)
    return loader, lambda epoch: None


def bucket_loader(**options):
    texts = RaggedArray.from_sequences([np.arange(i, i + i % 17) for i in range(90)])
    sampler = LengthBucketSampler(texts, max_tokens=60, bucket_batches=3)
    options |= {"batch_sampler": sampler, "collate_fn": Collate(Pad())}
    return StatefulDataLoader(ArrayDataset(texts), **options), sampler.set_epoch


def read_shard(number):
    return [{"i": 9 * number + i, "x": np.full(3, i)} for i in range(9)]


def stream_loader(**options):
    dataset = StreamDataset(range(10), 16, open_shard=read_shard)
    return StatefulDataLoader(dataset, 4, collate_fn=Collate(), **options), dataset.set_epoch


LOADERS = {"array": array_loader, "bucket": bucket_loader, "stream": stream_loader}


def train(kind, workers, ahead, saved=None, most=None):
    """Returns all batches of two epochs, or the state that a job saves after this many; then resumes."""
    loader, set_epoch = LOADERS[kind](num_workers=workers)
    if ahead:
        loader = DeviceLoader(loader, "cpu", prefetch=3)
    epoch, batches = 0, []
    if saved is not None:
        epoch, batches, state = pickle.loads(saved)
        loader.load_state_dict(state)
    for number in range(epoch, 2):
        set_epoch(number)
        for batch in loader:
            batches.append((number, str(batch)))
            if len(batches) == most:
                return pickle.dumps((number, batches, loader.state_dict()))
    return batches


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_a_job_resumes_with_the_remaining_batches(kind, workers, ahead):
    whole = train(kind, workers, False)
    saved, quarter = None, len(whole) // 4
    # Starting workers is slow.
    for most in (2 * quarter,) if workers else (quarter, 3 * quarter):
        saved = train(kind, workers, ahead, saved, most)
    assert train(kind, workers, ahead, saved) == whole


# Invalid states.


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


# Epochs before and after.


@pytest.mark.parametrize(
    ("workers", "persistent", "is_said"),
    [(0, False, True), (0, False, False), (2, False, True), (2, False, False), (2, True, True)],
)
def test_epochs_before_and_after(workers, persistent, is_said):
    """A state saved anywhere, including after the last batch, resumes the epoch, then the next ones."""

    def new_loader():
        options = {"num_workers": workers, "persistent_workers": persistent}
        return StatefulDataLoader(StreamDataset(range(50), 10), 7, collate_fn=list, **options)

    def epoch_of(loader, epoch):
        if is_said:
            loader.dataset.set_epoch(epoch)
        return iter(loader)

    loader = new_loader()
    expected = [list(epoch_of(loader, epoch)) for epoch in range(4)]
    assert len({str(batches) for batches in expected}) == 4

    loader = new_loader()
    list(epoch_of(loader, 0))
    iterator = epoch_of(loader, 1)
    states = [copy.deepcopy(loader.state_dict())]
    for _ in iterator:
        states.append(copy.deepcopy(loader.state_dict()))
    over = copy.deepcopy(loader.state_dict())

    for yielded, state in enumerate(states):
        if workers and yielded != 3:
            continue  # starting workers is slow
        loader = new_loader()
        loader.load_state_dict(state)
        assert list(epoch_of(loader, 1)) == expected[1][yielded:]
        assert list(epoch_of(loader, 2)) == expected[2]
    for yielded in (2, len(expected[1])):  # into a loader at another position
        loader.load_state_dict(states[yielded])
        assert list(epoch_of(loader, 1)) == expected[1][yielded:]
    loader = new_loader()
    loader.load_state_dict(over)
    assert list(epoch_of(loader, 2)) == expected[2]
    assert list(epoch_of(loader, 3)) == expected[3]

    loader = new_loader()  # an interrupted second iteration, saved before the next one
    next(epoch_of(loader, 0))
    epoch_of(loader, 1)
    state = loader.state_dict()
    loader = new_loader()
    loader.load_state_dict(state)
    assert list(epoch_of(loader, 1)) == expected[1]
