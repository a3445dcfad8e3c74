"""A batch that is referenced in any form is never overwritten; other batches are reused."""

import copy
import hashlib
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from programs import run_program
from samples import assert_same

BATCH, SHAPE = 16, (32, 32, 3)


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (200, *SHAPE), np.uint8)
    return pinfeed.ArrayDataset({"image": images, "row": np.arange(len(images))})


# 196 kB and 49 kB: a buffer of the pool, and one from malloc.
COLLATES = {
    "Image": pinfeed.Collate({"image": pinfeed.Image(0.5, 0.25)}),
    "channels_last": pinfeed.Collate({"image": pinfeed.Image(channels_last=True)}),
    "small": pinfeed.Collate({"image": pinfeed.Image(dtype=torch.uint8)}),
}


@pytest.fixture(params=COLLATES)
def batch_at(request, dataset):
    collate = COLLATES[request.param]
    return lambda start: collate(dataset.__getitems__(range(start, start + BATCH)))["image"]


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


HOLDS = {
    "batch": lambda batch: batch,
    "slice": lambda batch: batch[3:5],
    "one value": lambda batch: batch[-1, -1, -1, -1],
    "permuted": lambda batch: batch.permute(0, 2, 3, 1),
    "flattened": lambda batch: batch.flatten(),
    "detached": lambda batch: batch.detach(),
    "other dtype": lambda batch: batch.view({1: torch.int8, 4: torch.int32}[batch.itemsize]),
    "NumPy view": lambda batch: batch.numpy(),
    "slice of a NumPy view": lambda batch: batch.numpy()[2:, ::-1],
    "NumPy view of a slice": lambda batch: batch[2].numpy(),
    "np.asarray": np.asarray,
    "DLPack": lambda batch: np.from_dlpack(batch),
    "tensor of a NumPy view": lambda batch: torch.from_numpy(batch.numpy()),
    "chunks": lambda batch: batch.unbind(),
    "memoryview": lambda batch: memoryview(batch.numpy()),
    "shallow copy": copy.copy,
}


@pytest.mark.parametrize("hold", HOLDS)
def test_held_batches_survive_later_batches(hold, batch_at):
    held = HOLDS[hold](batch_at(0))
    parts = held if isinstance(held, tuple) else [held]
    before = [digest(part) for part in parts]
    for i in range(200):
        batch_at(1 + i % 100)
    assert [digest(part) for part in parts] == before


def test_autograd_graphs_hold_batches(dataset):
    weight = torch.ones(3, requires_grad=True)
    batch = COLLATES["Image"](dataset.__getitems__(range(BATCH)))["image"]
    expected = batch.sum((0, 2, 3))
    loss = (batch * weight[:, None, None]).sum()  # now only the graph holds the batch
    del batch
    for i in range(100):
        COLLATES["Image"](dataset.__getitems__(range(i, i + BATCH)))
    loss.backward()
    torch.testing.assert_close(weight.grad, expected)


def test_a_loop_over_a_loader_needs_two_buffers(dataset):
    places = set()
    for _ in range(20):
        for batch in DataLoader(dataset, BATCH, drop_last=True, collate_fn=COLLATES["Image"]):
            places.add(batch["image"].data_ptr())
    assert len(places) <= 2


@pytest.mark.parametrize("native_threads", [1, 2])
def test_threads_collate_at_the_same_time(native_threads, dataset):
    collate = COLLATES["Image"]
    starts = [list(range(start, start + 100)) for start in range(0, 100, 7)]
    expected = [digest(collate(dataset.__getitems__(rows))["image"]) for rows in starts]

    def work(seed):
        order = random.Random(seed)
        held = []
        wrong = 0
        for _ in range(40):
            i = order.randrange(len(starts))
            held.append((collate(dataset.__getitems__(starts[i]))["image"], i))
            if len(held) > 2:
                batch, which = held.pop(0)
                wrong += digest(batch) != expected[which]
        return wrong

    pinfeed.set_num_threads(native_threads)
    try:
        with ThreadPoolExecutor(4) as threads:
            futures = [threads.submit(work, seed) for seed in range(4)]
            assert [future.result(timeout=60) for future in futures] == [0] * 4
    finally:
        pinfeed.set_num_threads(None)


def test_batches_copy_pickle_and_move_to_shared_memory(dataset):
    batch = COLLATES["Image"](dataset.__getitems__(range(BATCH)))["image"]
    assert_same(copy.deepcopy(batch), batch)
    assert_same(pickle.loads(pickle.dumps(batch)), batch)
    before = digest(batch)
    batch.share_memory_()  # moves the batch out of the pool's buffer
    assert batch.is_shared()
    COLLATES["Image"](dataset.__getitems__(range(50, 50 + BATCH)))
    assert digest(batch) == before


def test_batches_that_live_until_the_process_exits():
    run_program("batches_at_exit")
