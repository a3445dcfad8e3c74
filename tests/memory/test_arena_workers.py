"""What reaches the arena, and who: numbers, children of workers, processes that have ended."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from pinfeed import _core
from pinfeed.memory import worker
from programs import run_python
from test_arena_attacks import SETUP, run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas")

KINDS = """
kinds = {
    "arrays": [np.full(3, i) for i in range(400)],
    "integers": range(400),
    "fractions": [i / 2 for i in range(400)],
    "booleans": [i % 3 == 0 for i in range(400)],
    "numbers of NumPy": [np.float32(i) for i in range(400)],
    "0-d tensors": [torch.tensor(i) for i in range(400)],
    "kept tensors": [torch.full((3,), i) for i in range(400)],
    "kept tensors and strings": [(str(i), {"x": torch.tensor([i])}) for i in range(400)],
    "strings": [str(i) for i in range(400)],
}
specs = {"kept tensors": pinfeed.Keep(), "kept tensors and strings": (None, {"x": pinfeed.Keep()})}

def tensors_in(batch):
    if isinstance(batch, torch.Tensor):
        return [batch]
    children = batch.values() if isinstance(batch, dict) else batch
    return [] if isinstance(batch, str) else [t for child in children for t in tensors_in(child)]

for kind, samples in kinds.items():
    before = len(os.listdir("/proc/self/fd"))
    options = {"batch_size": 2, "collate_fn": pinfeed.Collate(specs.get(kind))}
    kept = list(DataLoader(list(samples), num_workers=1, timeout=60, **options))
    opened = len(os.listdir("/proc/self/fd")) - before
    assert opened <= 8, (kind, opened)
    assert str(kept) == str(list(DataLoader(list(samples), **options))), kind
    tensors = tensors_in(kept)
    assert len(tensors) == (0 if kind == "strings" else 400 if "kept" in kind else 200), kind
    assert all(in_arena(tensor) for tensor in tensors), kind
    assert pinfeed.arena_stats()["live_slots"] == len(tensors), kind
    del kept, tensors
    nothing_is_left()
"""


def test_batches_open_no_file_whatever_they_are_made_of() -> None:
    assert run_python(SETUP + KINDS) == ""


CHILDREN = """
import multiprocessing

def files_of_shared_memory():
    return [line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/torch_" in line]

def work(collate, i, pipe):
    try:
        batch = collate([{"x": np.full(10_000, i), "label": i}] * 2)
        assert pinfeed.Collate()([torch.full((3,), i)] * 2).tolist() == [[i] * 3] * 2
        shared = [leaf.is_shared() for leaf in batch.values()]
        pipe.send((batch["x"][1, -1].item(), batch["label"].tolist(), shared, files_of_shared_memory()))
    except BaseException as error:
        pipe.send(repr(error))

class Samples:
    def __init__(self):
        self.collate = pinfeed.Collate()

    def __len__(self):
        return 2

    def __getitem__(self, i):
        for context in map(multiprocessing.get_context, sys.argv[1].split(",")):
            here, there = context.Pipe()
            multiprocessing.current_process()._config["daemon"] = False  # as some users do
            child = context.Process(target=work, args=(self.collate, i, there))
            child.start()
            assert here.poll(60)
            found = here.recv()
            assert found == (i, [i, i], [False, False], []), found
            child.join()
        return np.full(1000, i)

if __name__ == "__main__":
    collate = pinfeed.Collate()
    loader = DataLoader(Samples(), 2, num_workers=1, collate_fn=collate, timeout=90)
    for i, batch in enumerate(loader):
        assert in_arena(batch) and batch[:, 0].tolist() == [2 * i, 2 * i + 1]
    assert pinfeed.arena_stats()["slots"] > 0
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_a_worker_use_their_own_memory(method: str, tmp_path: Path) -> None:
    assert run_script(tmp_path, CHILDREN, method) == ""


NESTED = """
import multiprocessing

def outer(samples):
    multiprocessing.current_process()._config["daemon"] = False
    loader = DataLoader(
        [np.full(1000, i) for i in samples], 1, num_workers=1, collate_fn=inner, timeout=60
    )
    return torch.cat(list(loader))

inner = pinfeed.Collate()
assert inner([1, 2]).tolist() == [1, 2]
for i, batch in enumerate(DataLoader(range(4), 2, num_workers=1, collate_fn=outer, timeout=60)):
    assert batch[:, -1].tolist() == [2 * i, 2 * i + 1]
"""


def test_a_worker_whose_child_is_a_worker() -> None:
    """Its batches go to another process, so that they need shared memory, as the log says."""
    logged = run_python(SETUP + NESTED).splitlines()
    assert len(logged) == 2
    assert all("this worker has no arena" in line for line in logged)


ENDED = """
dataset = np.arange(800).reshape(8, 100)
iterator = iter(DataLoader(dataset, 2, num_workers=2, collate_fn=pinfeed.Collate(), timeout=60))
next(iterator)
deadline = time.monotonic() + 30
while pinfeed.arena_stats()["workers"] < 2:  # each counts from its first batch on
    assert time.monotonic() < deadline
    time.sleep(0.01)
workers = list(iterator._workers)
del iterator
assert not any(worker.is_alive() for worker in workers)
assert pinfeed.arena_stats()["workers"] == 0, pinfeed.arena_stats()
"""


def test_processes_that_have_ended_are_not_counted() -> None:
    run_python(SETUP + ENDED)


def use_all_slots(arena: _core.Arena, is_in_use: bool) -> list[torch.Tensor]:
    """Makes all slots there are like the second one, in the table itself: one by one takes minutes."""
    first, second = arena.allocate(8), arena.allocate(8)
    assert first is not None
    assert second is not None
    if not is_in_use:
        del second
    with mmap.mmap(arena.descriptor, arena.first_slot) as file:
        table = np.frombuffer(file, np.uint64)
        extent = arena.first_slot // 4096 << 8  # in pages, and the smallest size
        (start,) = np.flatnonzero(table == extent)
        (next_one,) = np.flatnonzero(table == extent + 256)
        width = next_one - start
        slots = table[start:][: width * worker.MOST_SLOTS].reshape(worker.MOST_SLOTS, width)
        slots[2:] = slots[1]
        slots[:, 0] = extent + 256 * np.arange(worker.MOST_SLOTS, dtype=np.uint64)
        del table, slots
    assert arena.stats()["slots"] == worker.MOST_SLOTS
    assert arena.allocate(2**20) is None
    return [first, second] if is_in_use else [first]


@pytest.mark.parametrize("is_in_use", [True, False])
def test_an_arena_that_is_full_of_small_arrays(
    is_in_use: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PATIENCE", 0.1)
    arena = _core.Arena.create(2**34, 2**32)
    assert arena.join()
    kept = use_all_slots(arena, is_in_use)
    member = worker.WorkerArena(arena, None, threading.Event(), os.getpid())
    with pytest.raises(MemoryError) as caught:
        _core.gather(np.ones((1, 2**20), np.uint8), None, None, None, member.outputs, "leaf", 1)
    in_use = "65,536 arrays of 268,435,456 bytes" if is_in_use else "1 arrays of 4,096 bytes"
    assert f"room for 65,536 arrays and max_bytes=4,294,967,296 bytes: {in_use} are" in str(
        caught.value
    )
    del kept
