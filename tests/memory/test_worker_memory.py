"""Batches from DataLoader workers, in memory that the main process maps too.

Loaders have a timeout, so that nothing hangs. `test_workers.py` compares the batches themselves.
"""

import functools
import gc
import os
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import active_children

import numpy as np
import pytest
import torch
from torch.multiprocessing import Queue
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed
from pinfeed.diagnosis import configuration
from pinfeed.loaders.transfer import tensors_in
from pinfeed.memory import main_process, worker
from samples import assert_same
from worker_memory import in_worker_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has worker memory")

SAMPLES = [{"x": np.full((50, 100), i, np.float32), "name": f"number {i}"} for i in range(24)]


@pytest.fixture(autouse=True)
def everything_is_released():
    """Checks that all worker memory is released, also after workers have ended."""
    yield
    gc.collect()
    deadline = time.monotonic() + 10
    while (stats := pinfeed.testing.worker_memory_stats())["workers"]:
        if time.monotonic() > deadline:
            break
        active_children()  # waits for ended workers; torch before 2.13 doesn't
        time.sleep(0.01)
    assert (stats["workers"], stats["live_slots"], stats["resident_bytes"]) == (0, 0, 0)


def loader(dataset=SAMPLES, **options):
    options = {"collate_fn": pinfeed.Collate({"name": pinfeed.Keep()}), "batch_size": 4} | options
    method = {"multiprocessing_context": "fork", "timeout": 60, "num_workers": 2}
    return DataLoader(dataset, **(method | options))


def expected(dataset=SAMPLES, **options):
    return list(loader(dataset, num_workers=0, timeout=0, multiprocessing_context=None, **options))


def memories_of_threads(_):
    """Returns the number of memories that a worker's threads get from simultaneous requests."""
    sys.setswitchinterval(1e-6)
    together = threading.Barrier(8)

    def ask(_):
        together.wait()
        return id(worker.worker_memory())

    with ThreadPoolExecutor(8) as threads:
        return len(set(threads.map(ask, range(8))))


def test_the_threads_of_a_worker_share_a_memory():
    counts = loader(range(12), batch_size=1, num_workers=6, collate_fn=memories_of_threads)
    assert list(counts) == [1] * 12


def test_a_slot_is_reused_when_the_last_view_dies():
    iterator = iter(loader(SAMPLES * 3, num_workers=1, prefetch_factor=1))
    first = next(iterator)["x"]
    row, array, values = first[1], first.numpy()[2:3], first.clone()
    address = first.data_ptr()
    del first
    rest = [next(iterator)["x"] for _ in range(6)]
    assert address not in {tensor.data_ptr() for tensor in rest}
    assert torch.equal(row, values[1])
    assert np.array_equal(array, values.numpy()[2:3])
    del row
    rest += [next(iterator)["x"] for _ in range(3)]
    assert address not in {tensor.data_ptr() for tensor in rest}
    del array
    rest += [next(iterator)["x"] for _ in range(6)]
    assert address in {tensor.data_ptr() for tensor in rest}


def test_the_memory_stops_growing():
    batches = loader(persistent_workers=True)
    for _ in range(20):
        for batch in batches:
            assert in_worker_memory(batch["x"])
    # 2 × 2 prefetched batches, one in use, one dropped, two being built.
    assert pinfeed.testing.worker_memory_stats()["grows"] <= 8


COLLATE = pinfeed.Collate()


def stacked(samples):
    return COLLATE([sample["x"] for sample in samples])


def with_views(samples):
    """A user's wrapper that changes a batch in the worker."""
    x = stacked(samples)
    as_numpy, parameter = torch.from_numpy(x.numpy()[1, 3:]), torch.nn.Parameter(x[2])
    views = {
        "whole": x,
        "part": x[1:3, 5:],
        "turned": x.transpose(0, 2),
        "bits": x.view(torch.int32),
    }
    views |= {"expanded": x[:1].expand(7, -1, -1), "again": x, "rows": [*x[0]]}
    return views | {"as_numpy": as_numpy, "parameter": parameter}


def test_views_of_a_batch():
    views, plain = next(iter(loader(collate_fn=with_views))), expected(collate_fn=with_views)[0]
    assert_same(views, plain)
    entries, others = tensors_in(views), tensors_in(plain)
    assert [entry.stride() for entry in entries] == [entry.stride() for entry in others]
    assert all(in_worker_memory(entry) for entry in entries)
    views["whole"][1] = -1  # one memory, as in the worker
    assert (views["part"][0] == -1).all()
    assert (views["as_numpy"] == -1).all()


CACHE = []  # of each worker


def cached(samples):
    """Returns the same tensor forever."""
    if not CACHE:
        CACHE.append(stacked(samples))
    return CACHE[0]


def test_a_worker_can_keep_a_sent_batch():
    batches = list(loader(SAMPLES * 4, num_workers=1, collate_fn=cached))
    assert len({batch.data_ptr() for batch in batches}) == 1
    assert all(torch.equal(batch, batches[0]) for batch in batches)
    assert pinfeed.testing.worker_memory_stats()["live_slots"] == 1


class Stream(IterableDataset):
    """Streams of different lengths, so that workers end at different times."""

    def __iter__(self):
        number = get_worker_info().id if get_worker_info() else 0
        yield from SAMPLES[: 4 * (3 * number + 1)]


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
@pytest.mark.parametrize(
    "options", [{}, {"in_order": False}, {"prefetch_factor": 7}, {"pin_memory": True}]
)
def test_an_iterable_dataset(options):
    batches = list(loader(Stream(), **options))
    wanted = [SAMPLES[i : i + 4] for i in (0, 0, 4, 8, 12)]
    result = sorted(batches, key=lambda batch: batch["x"][0, 0, 0])
    assert_same(result, [pinfeed.Collate({"name": pinfeed.Keep()})(batch) for batch in wanted])


@pytest.mark.parametrize("persistent", [False, True])
def test_an_iterator_dropped_in_mid_epoch(persistent):
    batches = loader(persistent_workers=persistent)
    for _ in range(3):
        kept = next(iter(batches))["x"]
    assert_same(list(batches), expected())
    assert (
        pinfeed.testing.worker_memory_stats()["resident_bytes"]
        <= (2 * 6 if persistent else 1) * 131_072
    )
    assert torch.equal(kept, expected()[0]["x"])


def test_memory_is_released_when_workers_end():
    iterator = iter(loader(SAMPLES * 4, prefetch_factor=4))
    kept = [next(iterator)["x"] for _ in range(3)]
    descriptors = [worker._descriptor for worker in main_process._workers.values()]
    assert len(descriptors) == 2
    assert sum(map(bytes_in_memory, descriptors)) > 6 * 80_000
    del iterator  # unread batches are freed immediately, the others with their last view
    assert 3 * 80_000 < sum(map(bytes_in_memory, descriptors)) < 3 * 110_000
    assert_same(kept, [batch["x"] for batch in expected()[:3]])
    del kept
    assert sum(map(bytes_in_memory, descriptors)) < 100_000  # the first pages of slots


def bytes_in_memory(descriptor):
    return 512 * os.fstat(descriptor).st_blocks


@pytest.mark.filterwarnings("ignore")  # accelerate's own
@pytest.mark.parametrize("library", ["torchdata", "accelerate"])
def test_loaders_of_other_libraries(library):
    if library == "torchdata":
        collate = pinfeed.Collate({"name": pinfeed.Keep()})
        other = StatefulDataLoader(SAMPLES, 4, num_workers=2, collate_fn=collate)
    else:
        accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
        other = accelerator.prepare(loader())
    batches = list(other)
    assert all(in_worker_memory(batch["x"]) for batch in batches)
    assert_same(batches, expected())


def put_elsewhere(queue, samples):
    """Also puts each batch into a second queue, which isn't the loader's."""
    x = stacked(samples)
    queue.put(x[1:])
    return x


def test_batches_in_other_queues_use_shared_memory():
    queue = Queue()
    collate = functools.partial(put_elsewhere, queue)
    for batch in loader(collate_fn=collate, num_workers=1, persistent_workers=True):
        other = queue.get(timeout=60)
        assert not in_worker_memory(other)
        assert torch.equal(other, batch[1:])


def test_tensors_in_shared_memory_stay_there():
    shared = torch.zeros(3).share_memory_()
    (batch,) = loader([shared], collate_fn=pinfeed.Collate(pinfeed.Keep()))
    shared.fill_(7)
    assert batch[0].tolist() == [7, 7, 7]


@pytest.fixture
def limited():
    pinfeed.set_worker_memory_limit(2**20)
    yield
    pinfeed.set_worker_memory_limit(None)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_held_batches_reach_the_limit(method, limited, monkeypatch):
    monkeypatch.setattr(worker, "PATIENCE", 0.5)  # of forked workers
    kept = []
    collate = pinfeed.Collate()
    options = {"collate_fn": collate, "prefetch_factor": 30, "multiprocessing_context": method}
    iterator = iter(loader(SAMPLES * 20, **options))
    kept.extend(next(iterator) for _ in range(8))
    stats = pinfeed.testing.worker_memory_stats()
    assert stats["resident_bytes"] <= 2**20
    if method == "fork":
        with pytest.raises(MemoryError, match=r"pinfeed\.set_worker_memory_limit\(max_bytes\)"):
            kept.extend(iterator)
        assert pinfeed.testing.worker_memory_stats()["live_bytes"] <= 2**20
    assert_same(kept[:6], expected(collate_fn=collate))
    del iterator


def test_a_limit_below_the_need_only_slows_down(limited):
    for batch in loader(SAMPLES * 20, prefetch_factor=30, in_order=False):
        assert batch["x"].shape == (4, 50, 100)
        assert pinfeed.testing.worker_memory_stats()["resident_bytes"] <= 2**20
        time.sleep(0.005)
        waits = pinfeed.testing.worker_memory_stats()["waits"]
    assert waits > 0


def test_a_batch_larger_than_the_limit_and_its_fix(limited):
    options = {"batch_size": 144, "num_workers": 1}
    with pytest.raises(MemoryError, match=r"memory for 2,880,000 bytes.*allow more bytes with"):
        next(iter(loader(SAMPLES * 6, **options)))
    pinfeed.set_worker_memory_limit(2**23)
    assert len(list(loader(SAMPLES * 6, **options))) == 1


class Collated(torch.utils.data.Dataset):
    """Collates views of each sample, and keeps all or none of them."""

    def __init__(self, keeps=True):
        self.held, self.keeps = [], keeps

    def __len__(self):
        return 8

    def __getitem__(self, index):
        views = [np.full((250, 100), index + i, np.float32) for i in range(2)]
        batch = pinfeed.Collate()(views)
        self.held += [batch] * self.keeps
        return {"views": batch, "sum": float((self.held or [batch])[0].sum())}


def test_batches_of_the_dataset():
    batches = list(loader(Collated(keeps=False), batch_size=None, collate_fn=None))
    assert all(in_worker_memory(batch["views"]) for batch in batches)
    assert [batch["views"][:, 0, 0].tolist() for batch in batches] == [[i, i + 1] for i in range(8)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_dataset_that_collates_does_not_wait_for_itself(method, limited):
    options = {"num_workers": 1, "multiprocessing_context": method, "collate_fn": pinfeed.Collate()}
    batches = list(DataLoader(Collated(), 4, timeout=60, **options))
    views = torch.cat([batch["views"] for batch in batches])
    assert views[:, :, 0, 0].tolist() == [[i, i + 1] for i in range(8)]
    assert torch.cat([batch["sum"] for batch in batches]).tolist() == [25_000.0] * 8
    assert pinfeed.testing.worker_memory_stats()["resident_bytes"] <= 2**20


def test_a_dataset_that_collates_does_not_wait_for_a_main_process_that_holds_a_batch(
    limited, monkeypatch
):
    monkeypatch.setattr(worker, "PATIENCE", 5)
    sums = []
    dataset = Collated(keeps=False)
    for batch in DataLoader(dataset, 2, num_workers=1, timeout=60, collate_fn=pinfeed.Collate()):
        sums += batch["views"][:, :, 0, 0].tolist()
    assert sums == [[i, i + 1] for i in range(8)]


def test_a_batch_of_several_entries_waits_for_the_main_process(limited):
    samples = [{"x": np.full((250, 100), i, np.float32), "y": np.zeros(25_000)} for i in range(8)]
    options = {"batch_size": 2, "num_workers": 1, "collate_fn": pinfeed.Collate(), "timeout": 1}
    iterator = iter(loader(samples, **options))
    first = next(iterator)
    with pytest.raises(RuntimeError, match="timed out"):  # the worker waits longer
        next(iterator)
    assert first["x"][:, 0, 0].tolist() == [0, 1]


def test_running_workers_follow_a_changed_limit():
    iterator = iter(loader(SAMPLES * 20, num_workers=1, prefetch_factor=10))
    kept = [next(iterator)["x"] for _ in range(20)]
    try:
        pinfeed.set_worker_memory_limit(2**20)
        assert pinfeed.testing.worker_memory_stats()["resident_bytes"] > 2**20
        assert_same(kept[:6], [batch["x"] for batch in expected()])  # memory in use stays
        del kept
        for _ in range(40):
            next(iterator)
        assert pinfeed.testing.worker_memory_stats()["resident_bytes"] <= 2**20
    finally:
        pinfeed.set_worker_memory_limit(None)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (1.5, TypeError), ("8G", TypeError), (True, TypeError), (0, ValueError), (2**20 - 1, ValueError),
        (2**63, ValueError), (2**64, ValueError),
    ],
)  # fmt: skip
def test_bad_limits(wrong, error, limited):
    with pytest.raises(error, match=r"^set_worker_memory_limit: max_bytes must be"):
        pinfeed.set_worker_memory_limit(wrong)
    assert pinfeed.testing.worker_memory_stats()["max_bytes"] == 2**20


def test_ranks_share_the_default_limit(monkeypatch):
    alone = pinfeed.testing.worker_memory_stats()["max_bytes"]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    # Not exactly an eighth, because other processes use memory.
    assert 0.05 < pinfeed.testing.worker_memory_stats()["max_bytes"] / alone < 0.25
    for text in ("", "0", "x", "-1"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", text)
        assert pinfeed.testing.worker_memory_stats()["max_bytes"] > 0.4 * alone


def test_varying_sizes_and_empty_batches():
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 9, rng.integers(1, 3000)) for _ in range(400)]
    for samples, field in ((sequences, pinfeed.Pad(mask=True)), ([np.ones((0, 3))] * 8, None)):
        options = {"collate_fn": pinfeed.Collate(field), "batch_size": 8}
        assert_same(list(loader(samples, **options)), expected(samples, **options))


def test_slots_grow_with_the_batches():
    samples = [np.full(5_000 + 200 * i, i) for i in range(250)]
    for i, batch in enumerate(loader(samples, collate_fn=pinfeed.Collate(), batch_size=1)):
        assert (batch == i).all()
        # Eight slots of up to 450 kB, not one per size.
        assert pinfeed.testing.worker_memory_stats()["resident_bytes"] < 8 * 2**19
        del batch


def test_many_held_batches():
    kept = deque(maxlen=50)
    samples = [np.full(5_000, i) for i in range(200)]
    for i, batch in enumerate(loader(samples, collate_fn=pinfeed.Collate(), batch_size=1)):
        kept.append(batch)
        assert (kept[0] == max(0, i - 49)).all()
        stats = pinfeed.testing.worker_memory_stats()
        assert stats["resident_bytes"] < 3 * 50 * 2**16  # at most 2**16 bytes for each array


def test_info_shows_where_batches_are_stored():
    assert configuration.facts()["workers"].startswith("reused shared memory")
