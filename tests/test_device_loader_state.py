"""What a DeviceLoader knows of a loop: its statistics, and the state of its loader."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from loaders import no_thread_is_left, on_cpu, watchdog
from pinfeed.loaders.snapshots import LoaderState, Snapshots
from samples import run_python

__all__ = ["no_thread_is_left", "watchdog"]  # fixtures of every test here


def sleeping(count: int, seconds: float) -> Iterator[torch.Tensor]:
    for _ in range(count):
        time.sleep(seconds)
        yield torch.zeros(10)


def test_stats() -> None:
    batches = on_cpu([])
    assert batches.stats() == (0, 0, 0, 0, 0)
    assert batches.stats().bottleneck is None

    start = time.perf_counter()
    batches = on_cpu(sleeping(10, 0.01))
    list(batches)
    elapsed = time.perf_counter() - start
    stats = batches.stats()
    assert stats.bottleneck == "loader"
    assert (stats.batches, stats.bytes) == (10, 0)
    assert 0.1 < stats.waiting_for_loader <= sum(stats[2:]) <= elapsed
    assert batches.stats() == stats  # time that passes after the loop is nobody's

    batches = on_cpu(sleeping(10, 0))
    for _ in batches:
        time.sleep(0.01)
        assert batches.stats().batches > 0
    assert batches.stats().bottleneck == "consumer"
    assert batches.stats().waiting_for_consumer > 0.05

    batches = on_cpu([1, 2, 3])
    list(batches)
    for _ in batches:
        break
    assert batches.stats().batches == 1  # of the last loop


def test_stats_of_a_loop_that_stands_still() -> None:
    batches = on_cpu(range(10))
    loop = iter(batches)
    next(loop)
    time.sleep(0.05)
    first = batches.stats()
    assert first.waiting_for_consumer > 0.03
    time.sleep(0.02)
    assert batches.stats().waiting_for_consumer > first.waiting_for_consumer + 0.01
    loop.close()


# State.


class Stateful:
    """A loader that can go on where it was."""

    def __init__(self, count: int = 10) -> None:
        self.count, self.position = count, 0

    def __iter__(self) -> Iterator[int]:
        while self.position < self.count:
            self.position += 1
            yield self.position - 1
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("depth", [1, 5])
@pytest.mark.parametrize("received", range(11))
def test_the_state_counts_what_was_received(received: int, depth: int, levels: int) -> None:
    def wrapped(loader: Any) -> Any:
        for _ in range(levels):
            loader = on_cpu(loader, depth=depth)
        return loader

    batches = wrapped(Stateful())
    assert batches.state_dict() == {"position": 0}
    loop = iter(batches)
    for i in range(received):
        assert next(loop) == i
    state = batches.state_dict()
    assert state == {"position": received}
    loop.close()
    assert batches.state_dict() == state  # fetched ahead, and never received

    resumed = wrapped(Stateful())
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert list(resumed) == list(range(received, 10))
    assert resumed.state_dict() == {"position": 0}
    assert list(resumed) == list(range(10))


def test_a_state_that_is_loaded_during_a_loop() -> None:
    batches = on_cpu(Stateful(), depth=1)
    loop = iter(batches)
    next(loop)
    batches.load_state_dict({"position": 7})
    loop.close()
    batches.load_state_dict({"position": 7})
    assert batches.state_dict() == {"position": 7}
    assert list(batches) == [7, 8, 9]


def test_an_error_in_state_dict() -> None:
    class Broken(Stateful):
        def state_dict(self) -> Any:
            raise NotImplementedError("no state")

    with pytest.raises(NotImplementedError, match="no state"):
        list(on_cpu(Broken()))


IN_A_HANDLER = """
import os, signal, sys, threading
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders.transfer import Transfer

class Loader:
    position = 0

    def __iter__(self):
        interrupt("iter")
        return self

    def __next__(self):
        interrupt(f"batch {self.position}")
        self.position += 1
        return self.position - 1

    def state_dict(self):
        return {"position": self.position}

def interrupt(place):
    if place == sys.argv[1]:
        signal.raise_signal(signal.SIGTERM)

def send(self, batch):
    if batch == 0 and sys.argv[1] == "sending":
        os.kill(os.getpid(), signal.SIGTERM)
        saved.wait()
    return normally(self, batch)

def save(*_):
    try:
        states.append(batches.state_dict())
    except RuntimeError as error:
        states.append("set a flag, and save after the batch" in str(error))
    saved.set()

normally, Transfer.send = Transfer.send, send
saved, states = threading.Event(), []
signal.signal(signal.SIGTERM, save)
batches = DeviceLoader(Loader(), "cpu")
loop = iter(batches)
assert next(loop) == 0
assert batches.state_dict() == {"position": 1}
assert next(loop) == 1
print(*states)
"""


@pytest.mark.parametrize(
    ("place", "saved"), [("iter", "{'position': 0}"), ("batch 0", "True"), ("sending", "True")]
)
def test_a_state_in_a_signal_handler(place: str, saved: str) -> None:
    assert run_python(IN_A_HANDLER, place, timeout=60) == f"{saved}\n"


def test_a_state_after_an_error_for_the_first_batch() -> None:
    class Failing(Stateful):
        def __iter__(self) -> Iterator[int]:
            self.position += 1
            raise LookupError
            yield

    batches = on_cpu(Failing())
    with pytest.raises(LookupError):
        next(iter(batches))
    assert batches.state_dict() == {"position": 1}


# Snapshots of a loader whose states take longer than its batches.


class Clock:
    """Time that passes when the loader works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class StatefulDataLoader(Stateful):
    """As torchdata's, to those who look at names."""

    __module__ = "torchdata.stateful_dataloader.stateful_dataloader"


@pytest.mark.parametrize(("batch_seconds", "expected"), [(0.0001, 2), (0.01, 6), (0.05, 10)])
def test_snapshots_take_a_fortieth_of_the_time(batch_seconds: float, expected: int) -> None:
    clock, taken = Clock(), []

    def take() -> int:
        clock.now += 0.001
        taken.append(clock.now)
        return len(taken)

    snapshots = Snapshots(StatefulDataLoader(), take, clock)
    for i in range(10):
        clock.now += batch_seconds
        state = snapshots.after_batch(i == 9)
        if state.since:
            assert state.since * batch_seconds <= 0.04
    assert state.since == 0  # what follows the end is always known
    assert abs(len(taken) - expected) <= 3


def test_only_loaders_that_repeat_themselves_are_asked_less_often() -> None:
    class OutOfOrder(StatefulDataLoader):
        in_order = False

    class Mine(StatefulDataLoader):
        pass

    def asked(loader: Any) -> int:
        taken: list[None] = []
        snapshots = Snapshots(loader, lambda: taken.append(None), Clock())
        snapshots._next_at = 1.0
        for _ in range(10):
            snapshots.after_batch(False)
        return len(taken)

    assert asked(Stateful()) == asked(OutOfOrder()) == asked([]) == 10
    assert asked(StatefulDataLoader()) == asked(Mine()) == 0


@pytest.fixture
def every_fourth(monkeypatch: pytest.MonkeyPatch) -> None:
    def after_batch(self: Snapshots, is_end: bool) -> LoaderState:
        last = self._last
        if last.snapshot is None or is_end or last.since == 3:
            self._last = LoaderState(self._take())
        else:
            self._last = LoaderState(last.snapshot, last.since + 1)
        return self._last

    monkeypatch.setattr(Snapshots, "after_batch", after_batch)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("received", range(11))
def test_batches_since_a_snapshot(received: int, levels: int, every_fourth: None) -> None:
    def wrapped() -> Any:
        loader: Any = StatefulDataLoader()
        for _ in range(levels):
            loader = on_cpu(loader)
        return loader

    batches = wrapped()
    loop = iter(batches)
    assert [next(loop) for _ in range(received)] == list(range(received))
    state = pickle.loads(pickle.dumps(batches.state_dict()))
    loop.close()
    assert batches.state_dict() == state

    resumed = wrapped()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    loop = iter(resumed)
    assert resumed.state_dict() == state  # before the first batch
    rest = []
    for number in loop:
        rest.append(number)
        again = wrapped()
        again.load_state_dict(resumed.state_dict())  # a state of one that was resumed
        assert list(again) == list(range(number + 1, 10))
    assert rest == list(range(received, 10))
    assert list(resumed) == list(range(10))


def test_a_state_of_the_loader_itself_is_loaded() -> None:
    loader = StatefulDataLoader()
    batches = iter(loader)
    next(batches), next(batches)
    resumed = on_cpu(StatefulDataLoader())
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == list(range(2, 10))


@pytest.mark.parametrize(
    ("since", "error", "message"),
    [
        (-1, ValueError, "must be at least 0, got -1"),
        (2.5, TypeError, "must be an integer, got 2.5"),
        (None, TypeError, "must be an integer, got None"),
        ("3", TypeError, "must be an integer, got '3'"),
        (True, TypeError, "must be an integer, got True"),
    ],
)
def test_batches_since_that_are_no_number(since: Any, error: Any, message: str) -> None:
    batches = on_cpu(StatefulDataLoader())
    with pytest.raises(error, match=f"DeviceLoader: batches_since of the state {message}"):
        batches.load_state_dict({"snapshot": {"position": 4}, "batches_since": since})
    assert list(batches) == list(range(10))  # nothing was loaded


@pytest.mark.parametrize("since", [7, 10**9, 10**30])
def test_more_batches_since_than_there_are(since: int) -> None:
    batches = on_cpu(StatefulDataLoader())
    batches.load_state_dict({"snapshot": {"position": 4}, "batches_since": since})
    loop = iter(batches)
    message = f"has {since} batches_since its snapshot, but the loader made only 6 after that"
    with pytest.raises(ValueError, match=f"DeviceLoader: the state {message}") as caught:
        next(loop)
    assert not hasattr(caught.value, "__notes__")  # it isn't the loader's
    assert list(loop) == []
    assert list(batches) == list(range(10))

    batches.load_state_dict({"snapshot": {"position": 4}, "batches_since": 6})
    assert list(batches) == []  # all of them were received


@pytest.mark.parametrize("levels", [1, 2])
def test_copies_of_one_with_a_loaded_state(levels: int) -> None:
    def loaded() -> Any:
        loader: Any = Stateful()
        for _ in range(levels):
            loader = on_cpu(loader)
        loader.load_state_dict({"snapshot": {"position": 4}, "batches_since": 3})
        return loader

    for a_copy in (copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))):
        batches = loaded()
        other = a_copy(batches)
        assert other.state_dict() == batches.state_dict()
        for each in (batches, other):
            assert list(each) == [7, 8, 9]
            assert list(each) == list(range(10))

    # These have one loader, which continues once.
    batches = loaded()
    other = copy.copy(batches)
    assert list(other) == [7, 8, 9]
    assert list(batches) == list(range(10))


def test_an_error_among_the_batches_that_are_passed_over() -> None:
    class Failing(StatefulDataLoader):
        def __iter__(self) -> Iterator[int]:
            for number in super().__iter__():
                if number == 5 and not failed:
                    failed.append(number)
                    raise LookupError("batch 5 is missing")
                yield number

    failed: list[int] = []
    batches = on_cpu(Failing())
    batches.load_state_dict({"snapshot": {"position": 4}, "batches_since": 3})
    loop = iter(batches)
    with pytest.raises(LookupError, match="batch 5 is missing"):
        next(loop)
    with pytest.raises(ValueError, match=r"3 batches_since .* made only 1 after that"):
        next(loop)  # a generator ends with its error
    assert next(loop, None) is None


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_torchdata(workers: int, every_fourth: None) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make() -> Any:
        generator = torch.Generator().manual_seed(1)
        loader = stateful.StatefulDataLoader(
            list(range(40)), 4, shuffle=True, num_workers=workers, generator=generator
        )
        return on_cpu(loader)

    whole = [batch.tolist() for batch in make()]
    for received in (0, 1, 3, 4, 6, 9, 10):
        batches = make()
        loop = iter(batches)
        first = [next(loop).tolist() for _ in range(received)]
        state = batches.state_dict()
        loop.close()
        resumed = make()
        resumed.load_state_dict(state)
        if received < 10:
            assert first + [batch.tolist() for batch in resumed] == whole
            # The loader alone, as the docstring says.
            bare = make().loader
            bare.load_state_dict(state.get("snapshot", state))
            rest = itertools.islice(bare, state.get("batches_since", 0), None)
            assert first + [batch.tolist() for batch in rest] == whole
        else:
            assert first == whole
