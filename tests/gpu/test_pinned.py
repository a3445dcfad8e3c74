"""Outputs of Collate and batches of workers in memory that CUDA has locked."""

from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from pinfeed import Collate, Image, Pad
from pinfeed.memory import trainer

pytestmark = [
    pytest.mark.gpu_only,
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

LONG = 100_000_000
SAMPLES = [np.full((300, 400), i, np.float32) for i in range(64)]
MIXED = [{"image": np.full((9, 8, 3), i, np.uint8), "tokens": [i] * i, "y": i} for i in range(16)]
SPEC = {"image": Image(), "tokens": Pad(mask="mask")}


@pytest.fixture(autouse=True)
def cuda_is_in_use() -> None:
    torch.cuda.init()
    torch.zeros(1, device="cuda")


def eventually(is_true: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.002)
    return is_true()


def workers(dataset: Any = SAMPLES, **options: Any) -> DataLoader[Any]:
    method = options.pop("method", "fork")
    options = {"collate_fn": Collate(), "batch_size": 4, "num_workers": 2} | options
    return DataLoader(dataset, multiprocessing_context=method, timeout=120, **options)


# Of this process.


def test_outputs_are_pinned() -> None:
    batch = Collate(SPEC)(MIXED)
    assert all(leaf.is_pinned() for leaf in [*batch["tokens"][:1], batch["image"], batch["y"]])
    assert not Collate(SPEC, pin=False)(MIXED)["image"].is_pinned()


def test_dataloader_has_nothing_left_to_copy() -> None:
    for batch in DataLoader(MIXED, 4, collate_fn=Collate({"tokens": Pad(lengths=False)})):
        for leaf in batch.values():
            assert leaf.pin_memory().data_ptr() == leaf.data_ptr()


NOT_STARTED = """
import numpy as np, pinfeed, torch
batch = pinfeed.Collate()([np.zeros(1000)] * 100)
assert not batch.is_pinned() and not torch.cuda.is_initialized()
assert pinfeed.Collate(pin=True)([np.zeros(1000)] * 100).is_pinned()
torch.zeros(1, device="cuda")
assert pinfeed.Collate()([np.zeros(1000)] * 100).is_pinned()
"""


def test_no_device_is_started_for_it() -> None:
    subprocess.run([sys.executable, "-c", NOT_STARTED], check=True, timeout=300)


# Of workers.


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_are_pinned_on_arrival(method: str, pin_memory: bool) -> None:
    for _ in range(2):  # workers that are forked when memory is pinned already, too
        for i, batch in enumerate(workers(method=method, pin_memory=pin_memory)):
            assert batch.is_pinned()
            assert trainer.own_arena().contains(batch.data_ptr())  # no copy was made
            assert batch[:, 0, 0].tolist() == [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]
    assert pinfeed.arena_stats()["pinned_bytes"] > 0


@pytest.mark.parametrize("how", ["current stream", "side stream", "dropped elsewhere", "loader"])
def test_slots_wait_for_copies(how: str) -> None:
    """Streams sleep before they copy, while workers would long have written the next batches."""
    side = torch.cuda.Stream()
    copies = []
    batches: Any = workers(SAMPLES * 4, prefetch_factor=1)
    if how == "loader":
        batches = pinfeed.DeviceLoader(batches, "cuda")
    for batch in batches:
        stream = torch.cuda.current_stream() if how == "current stream" else side
        if how == "loader":
            torch.cuda._sleep(LONG // 50)
            copies.append(batch + 0)
            continue
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG // 50)
            copies.append(batch.to("cuda", non_blocking=True))
            if how == "side stream":
                del batch
        if how == "dropped elsewhere":  # while another stream is current
            del batch
    torch.cuda.synchronize()
    for i, copy in enumerate(copies):
        first = 4 * (i % 16)
        assert copy.amin((1, 2)).tolist() == copy.amax((1, 2)).tolist()
        assert copy[:, 0, 0].tolist() == [first, first + 1, first + 2, first + 3]
    del batches
    batch = None
    gc.collect()
    trainer.own_arena().sweep()
    assert eventually(lambda: pinfeed.arena_stats()["live_slots"] == 0)


def test_a_copy_does_not_wait() -> None:
    batch = next(iter(workers()))
    torch.cuda._sleep(LONG)
    start = time.perf_counter()
    there = batch.to("cuda", non_blocking=True)
    seconds = time.perf_counter() - start
    torch.cuda.synchronize()
    assert seconds < 0.02
    assert torch.equal(there.cpu(), batch)


def test_a_graph_is_captured_while_slots_are_let_go() -> None:
    kept = list(workers(SAMPLES * 2))
    static = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            if kept:
                kept.pop()
            time.sleep(0.002)
            static.add_(1)
    graph.replay()
    assert static[0] == 21
    kept.clear()
    gc.collect()
    trainer.own_arena().sweep()
    assert eventually(lambda: pinfeed.arena_stats()["live_slots"] == 0)


def test_steady_state() -> None:
    batches = workers(persistent_workers=True)
    for _ in range(3):
        list(batches)
    pinned = pinfeed.arena_stats()["pinned_bytes"]
    allocations = torch.cuda.host_memory_stats()["num_host_alloc"]
    for _ in range(20):
        for batch in batches:
            batch.to("cuda", non_blocking=True)
    assert pinfeed.arena_stats()["pinned_bytes"] <= 2 * pinned
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == allocations


REFUSED = """
import warnings
import numpy as np, pinfeed, torch
from torch.utils.data import DataLoader

torch.zeros(1, device="cuda")
class Refusing:
    def __getattr__(self, name): return getattr(torch.cuda._cudart, name)
    def cudaHostRegister(self, address, size, flags):
        return torch.cuda._cudart.cudaHostRegister(address + 1, -1 % 2**64, flags)
torch.cuda.cudart = lambda made=Refusing(): made
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loader = DataLoader(np.zeros((64, 1000), np.float32), 4, num_workers=2, collate_fn=pinfeed.Collate())
    for batch in loader:
        assert not batch.is_pinned()
        assert (batch.to("cuda", non_blocking=True) + 1 == 1).all()
assert sum("could not be pinned" in str(warning.message) for warning in caught) == 1, caught
torch.ones(4, device="cuda").sum().item()  # the refused call is nobody else's error
"""


def test_memory_that_cuda_refuses() -> None:
    subprocess.run([sys.executable, "-c", REFUSED], check=True, timeout=300)


AT_EXIT = """
import numpy as np, pinfeed, torch
from torch.utils.data import DataLoader
loader = DataLoader(np.zeros((4000, 1000), np.float32), 4, num_workers=2, collate_fn=pinfeed.Collate(),
                    persistent_workers=True)
torch.zeros(1, device="cuda")
kept = []
for i, batch in enumerate(loader):
    kept.append(batch)
    there = batch.to("cuda", non_blocking=True)
    if i == 100:
        break
torch.cuda._sleep(10**9)
"""


def test_the_end_of_the_process() -> None:
    subprocess.run([sys.executable, "-c", AT_EXIT], check=True, timeout=300)


def test_workers_touch_no_device() -> None:
    assert "cuda" not in multiprocessing.get_all_start_methods()
    for initialized in workers(_Initialized(), batch_size=1):
        assert not initialized.item()


class _Initialized:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.array(torch.cuda.is_initialized())


def test_no_warning_comes_of_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*fork.*")
        list(workers())
