"""What a DeviceLoader knows of a loop: its statistics, and the state of its loader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from loaders import no_thread_is_left, on_cpu, watchdog

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
