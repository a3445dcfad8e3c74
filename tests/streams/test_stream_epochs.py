"""Each pass over a stream uses the next epoch, or the epoch that was set, in all workers and batches."""

import multiprocessing
import time
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from pinfeed import Collate, StreamDataset
from pinfeed.memory.shared_file import SharedIntegers
from pinfeed.packing import PackedStream
from pinfeed.samplers.epoch_clock import EpochClock
from streams import as_worker, keep

SHARDS = [range(10 * n, 10 * n + 10) for n in range(6)]


def make_stream(**options):
    return StreamDataset(SHARDS, 7, open_shard=iter, **options)


def begin(epochs, seed, worker, barrier, answers):
    exchange = SharedIntegers.compare_exchange

    def exchange_late(*arguments):
        time.sleep(0.01)  # now all workers have the same epoch
        return exchange(*arguments)

    with (
        as_worker(worker, 3, seed),
        mock.patch.object(SharedIntegers, "compare_exchange", exchange_late),
    ):
        barrier.wait()
        answers.put((seed, epochs.begin()[0]))


def test_workers_that_start_simultaneously_agree():
    fork = multiprocessing.get_context("fork")
    epochs = EpochClock(is_shared=True)
    for trial in range(5):
        barrier, answers = fork.Barrier(6), fork.SimpleQueue()
        jobs = [
            fork.Process(target=begin, args=(epochs, seed, worker, barrier, answers))
            for seed in (10 * trial + 1000, 10 * trial + 1005)
            for worker in range(3)
        ]
        for job in jobs:
            job.start()
        result = {answers.get() for _ in jobs}
        for job in jobs:
            job.join()
        assert len(result) == 2  # one epoch for each of the two passes
        assert {epoch for _, epoch in result} == {2 * trial, 2 * trial + 1}


def test_seeding_torch_repeats_an_epoch_as_with_shuffle():
    loader = DataLoader(make_stream(), 10, num_workers=2, collate_fn=keep)
    torch.manual_seed(1)
    first = list(loader)
    torch.manual_seed(1)
    assert list(loader) == first
    assert list(loader) != first


# States.


# The epochs that Collate receives.


CROP = pinfeed.augment.RandomCrop(4)
IMAGES = np.random.default_rng(0).integers(0, 256, (60, 12, 12, 1), np.uint8)


def make_collate():
    image = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=CROP)
    return Collate({"image": image}, seed=5, id_key="id")


def require_epoch(batch, epoch):
    """Asserts that the crops are of one epoch."""
    collate = make_collate()
    collate.set_epoch(epoch)
    ids = batch["id"].tolist()
    expected = collate([{"image": IMAGES[i], "id": i} for i in ids])
    assert torch.equal(batch["image"], expected["image"])


def image_samples():
    return ({"image": image, "id": i} for i, image in enumerate(IMAGES))


@pytest.mark.parametrize("buffer", [0, 9])
@pytest.mark.parametrize("workers", [0, 2])
def test_crops_follow_the_epoch(workers, buffer):
    stream = StreamDataset(image_samples, buffer)
    loader = DataLoader(stream, 8, num_workers=workers, collate_fn=make_collate())
    for epoch in (0, 1, 7, 8):
        if epoch == 7:
            stream.set_epoch(7)
        batches = list(loader)
        assert sorted(torch.cat([batch["id"] for batch in batches]).tolist()) == list(range(60))
        for batch in batches:
            require_epoch(batch, epoch)


def test_crops_of_a_list_whose_samples_come_again_in_each_epoch():
    stream = StreamDataset(list(image_samples()), 4, seed=0)
    loader = DataLoader(stream, 60, collate_fn=make_collate())
    for epoch in range(5):
        (batch,) = loader
        require_epoch(batch, epoch)


def test_crops_of_one_loader_while_another_one_runs():
    collate = make_collate()
    training, validation = (
        DataLoader(StreamDataset(image_samples), 8, collate_fn=collate) for _ in range(2)
    )
    list(training)
    for number, batch in enumerate(training):
        require_epoch(batch, 1)
        for other in validation:
            require_epoch(other, number)
    collate.set_epoch(3)  # a sample from elsewhere uses the epoch set in Collate
    require_epoch(collate(list(image_samples())), 3)


def test_batches_of_a_packed_stream_carry_their_epoch():
    packed = PackedStream(StreamDataset([[1, 2], [3], [4, 5, 6]], 2), seq_length=4)
    assert [{batch.epoch for batch in packed} for _ in range(3)] == [{0}, {1}, {2}]
    packed.set_epoch(7)
    loader = DataLoader(packed, None, num_workers=1, collate_fn=keep)
    assert {batch.epoch for batch in loader} == {7}
