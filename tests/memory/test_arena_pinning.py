"""Batches from workers in pinned slots, with a device that reads them as late as it may.

CUDA locks pages and has them read by `tests/gpu`; here everything else is tested.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from pinfeed.memory import pinning, trainer, worker
from programs import run_python

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

SAMPLES = [np.full((50, 40), i, np.float32) for i in range(24)]


class FakeRuntime:
    """A device that reads what it is asked to when its gate opens.

    Attributes:
        is_ready: Whether the process uses the device.
        left: How many more ranges it pins. None: all.
        ranges: (address, size) of those that it has pinned.
        gate: While it is closed, the device is busy.
        waits: How often somebody waited for the device.
    """

    def __init__(self) -> None:
        self.ready = True
        self.left: int | None = None
        self.ranges: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.waits = 0
        self.fails = False
        self._reads: list[Callable[[], None]] = []

    def is_ready(self) -> bool:
        return self.ready

    def register(self, address: int, size: int) -> None:
        assert address % 4096 == size % 4096 == 0
        assert size > 0
        if self.left == 0:
            raise RuntimeError("cudaHostRegister: out of memory")
        if self.left is not None:
            self.left -= 1
        self.ranges.append((address, size))

    def enter_thread(self) -> None: ...

    def wait_for_readers(self) -> None:
        self.waits += 1
        if self.fails:
            raise RuntimeError("the device is lost")
        self.gate.wait()
        while self._reads:
            self._reads.pop()()

    def read(self, tensor: torch.Tensor) -> list[float]:
        """What a copy that is started now finds in the tensor's memory."""
        found: list[float] = []
        address, count = tensor.data_ptr(), tensor.numel()

        def look() -> None:
            memory = (ctypes.c_float * count).from_address(address)
            found.extend(sorted(set(memory)))

        self._reads.append(look)
        return found

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether one range holds all of the tensor."""
        start = tensor.data_ptr()
        end = start + tensor.untyped_storage().nbytes()
        return any(a <= start and end <= a + size for a, size in self.ranges)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRuntime]:
    """A device, and an arena that no other test sees."""
    device = FakeRuntime()
    pinfeed.Collate()  # so that there is one to put aside
    monkeypatch.setattr(pinning, "runtime", device)
    monkeypatch.setattr(trainer, "_mine", None)
    yield device
    device.gate.set()
    gc.collect()
    arena = trainer.own_arena()
    arena.sweep()
    assert eventually(lambda: arena.stats()["live_slots"] == 0)
    pinning._pinnings[arena.id].close()


def eventually(is_true: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.002)
    return is_true()


def loader(dataset: Any = SAMPLES, **options: Any) -> DataLoader[Any]:
    options = {"collate_fn": pinfeed.Collate(), "batch_size": 4, "num_workers": 2} | options
    return DataLoader(dataset, multiprocessing_context="fork", timeout=60, **options)


def live_slots() -> int:
    return pinfeed.arena_stats()["live_slots"]


def test_batches_are_pinned_when_they_arrive(device: FakeRuntime) -> None:
    batches = loader(persistent_workers=True)
    for _ in range(5):
        for i, batch in enumerate(batches):
            assert device.has(batch)
            assert batch[:, 0, 0].tolist() == [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]
    # Ranges lie one behind the other, and there are few of them.
    arena = trainer.own_arena()
    assert device.ranges[0][0] == arena.address + arena.first_slot
    for (address, size), (other, _) in zip(device.ranges, device.ranges[1:], strict=False):
        assert address + size == other
    steps = len(device.ranges)
    assert steps <= pinfeed.arena_stats()["grows"]
    assert pinfeed.arena_stats()["pinned_bytes"] == sum(size for _, size in device.ranges)
    for _ in range(5):
        list(batches)
        gc.collect()
        assert eventually(lambda: live_slots() <= 4)
    assert len(device.ranges) <= steps + 3


def test_each_loader_starts_workers_that_see_the_pinned_slots(device: FakeRuntime) -> None:
    for start in range(4):
        batches = loader([sample + start for sample in SAMPLES])
        for i, batch in enumerate(batches):
            assert batch[0, 0, 0] == 4 * i + start
            assert device.has(batch)


def test_a_slot_is_not_used_while_the_device_may_read_it(device: FakeRuntime) -> None:
    batches = loader(SAMPLES * 10, num_workers=1, persistent_workers=True)
    iterator = iter(batches)
    device.gate.clear()
    addresses, found = [], []
    for i in range(6):
        batch = next(iterator)
        found.append(device.read(batch))
        addresses.append(batch.data_ptr())
        assert batch[0, 0, 0] == 4 * i
        del batch
    for _ in range(20):
        batch = next(iterator)
        assert batch.data_ptr() not in addresses
    assert found == [[]] * 6
    del batch
    assert live_slots() >= 26
    device.gate.set()
    assert eventually(lambda: live_slots() <= 4)
    assert found == [[4.0 * i + k for k in range(4)] for i in range(6)]
    grows = pinfeed.arena_stats()["grows"]
    for batch in iterator:
        assert device.has(batch)
    assert pinfeed.arena_stats()["grows"] == grows  # they were used again


def test_batches_from_before_the_device_was_used_wait_too(device: FakeRuntime) -> None:
    device.ready = False
    iterator = iter(loader(SAMPLES * 3, num_workers=1, prefetch_factor=1))
    early = next(iterator)
    assert not device.ranges
    assert pinfeed.arena_stats()["pinned_bytes"] == 0
    device.ready = True
    device.gate.clear()
    late = next(iterator)
    assert device.has(late)
    assert device.has(early)
    found = device.read(early)
    del early
    for _ in range(8):
        late = next(iterator)
    device.gate.set()
    del late
    assert eventually(lambda: bool(found))
    assert found == [0, 1, 2, 3]


def test_views_and_arrays_hold_the_slot(device: FakeRuntime) -> None:
    batch = next(iter(loader(num_workers=1)))
    view, array = batch[1], batch.numpy()[2]
    del batch
    time.sleep(0.05)
    assert live_slots() >= 1
    assert (view == 1).all()
    assert (array == 2).all()
    waits = device.waits
    del view, array
    assert eventually(lambda: device.waits > waits)


@pytest.mark.parametrize("left", [0, 1])
def test_memory_that_is_refused(device: FakeRuntime, left: int) -> None:
    device.left = left
    kept = []
    batches = loader(SAMPLES * 4, prefetch_factor=1)
    with pytest.warns(RuntimeWarning, match=r"could not be pinned.*out of memory") as caught:
        kept.extend(batches)
    assert len(caught) == 1
    assert [batch[0, 0, 0] for batch in kept] == [4 * i for i in range(6)] * 4
    assert len(device.ranges) == left
    assert any(device.has(batch) for batch in kept) == bool(left)
    assert not device.has(kept[-1])
    assert pinfeed.arena_stats()["pinned_bytes"] == sum(size for _, size in device.ranges)
    device.gate.clear()
    waits, live = device.waits, live_slots()
    del kept[next(i for i, batch in enumerate(kept) if not device.has(batch))]
    del kept[-1]  # whatever reads them has taken them along at once
    gc.collect()
    assert eventually(lambda: live_slots() == live - 2)
    assert device.waits == waits
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(batches)


def test_tensors_die_in_many_threads(device: FakeRuntime) -> None:
    def consume(batches: list[torch.Tensor]) -> None:
        while batches:
            batches.pop()

    for _ in range(5):
        kept = list(loader(SAMPLES * 4))
        threads = [threading.Thread(target=consume, args=(kept[i::4],)) for i in range(4)]
        del kept
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    del threads, thread
    gc.collect()
    assert eventually(lambda: live_slots() == 0)


def test_workers_that_wait_for_room_get_it_when_the_device_is_done(
    device: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The trainer waits for a batch, the workers for room, and nobody lets go of anything any more.
    monkeypatch.setattr(worker, "PATIENCE", 20)
    pinfeed.set_arena_limit(2**20)
    try:
        device.gate.clear()

        def open_when_they_wait() -> None:
            eventually(lambda: pinfeed.arena_stats()["waits"] > 0)
            device.gate.set()

        opening = threading.Thread(target=open_when_they_wait)
        opening.start()
        for i, batch in enumerate(loader(SAMPLES * 20)):
            assert batch[0, 0, 0] == 4 * (i % 6)
        opening.join()
        assert pinfeed.arena_stats()["waits"] > 0
        assert pinfeed.arena_stats()["resident_bytes"] <= 2**20
    finally:
        pinfeed.set_arena_limit(None)


def test_pinned_memory_is_not_given_back(device: FakeRuntime) -> None:
    batch = next(iter(loader(num_workers=1)))
    address = batch.data_ptr()
    del batch
    gc.collect()
    trainer.own_arena().sweep()
    assert eventually(lambda: live_slots() == 0)
    pinfeed.set_arena_limit(2**20)
    try:
        pinned = pinfeed.arena_stats()["pinned_bytes"]
        assert pinned > 0
        content = (ctypes.c_float * 8000).from_address(address)
        assert content[0] == 0
        assert content[7999] == 3  # a page that is given back is empty
        assert pinfeed.arena_stats()["pinned_bytes"] == pinned
    finally:
        pinfeed.set_arena_limit(None)


def test_no_more_is_pinned_than_the_arena_may_have(device: FakeRuntime) -> None:
    device.ready = False
    for size in (100, 200, 400, 800):  # of which each needs slots of its own
        list(loader([np.zeros(size * 256, np.float32)] * 8))
    gc.collect()
    pinfeed.set_arena_limit(4 * 2**20)
    try:
        device.ready = True
        with pytest.warns(RuntimeWarning, match="spread over more than max_bytes"):
            list(loader(SAMPLES))
        assert not device.ranges
    finally:
        pinfeed.set_arena_limit(None)


def test_a_device_that_fails_reads_no_more(device: FakeRuntime) -> None:
    device.fails = True
    list(loader())
    gc.collect()
    trainer.own_arena().sweep()
    assert eventually(lambda: live_slots() == 0)


AT_EXIT = """
import faulthandler, sys, threading, time
import numpy as np, pinfeed, torch
from pinfeed.memory import pinning, trainer
from torch.utils.data import DataLoader

class Busy:
    def is_ready(self): return True
    def register(self, address, size): pass
    def enter_thread(self): pass
    def wait_for_readers(self): time.sleep(float(sys.argv[1]))

if sys.argv[1] != "no device":
    pinning.runtime = Busy()
loader = DataLoader(np.arange(400.0)[:, None], 4, num_workers=2, collate_fn=pinfeed.Collate(),
                    multiprocessing_context="fork", persistent_workers=True)
kept = []
for i, batch in enumerate(loader):
    if i % 7 == 0:
        kept.append(batch)
    if i == 50:
        break
def let_go():
    while True:
        if kept:
            kept.pop()
        time.sleep(0.001)
threading.Thread(target=let_go, daemon=True).start()
assert (pinfeed.arena_stats()["pinned_bytes"] > 0) == (sys.argv[1] != "no device")
print("end", flush=True)
"""


@pytest.mark.parametrize("seconds", ["no device", "0", "0.01", "1000"])
def test_the_end_of_the_process(seconds: str) -> None:
    start = time.monotonic()
    assert run_python(AT_EXIT, seconds) == "end\n"
    assert time.monotonic() - start < 30


def test_a_process_without_a_device_pins_nothing() -> None:
    assert pinning.runtime.is_ready() == torch.cuda.is_initialized()
    if not torch.cuda.is_initialized():
        list(loader())
        assert pinfeed.arena_stats()["pinned_bytes"] == 0
