"""The statistics of a DeviceLoader's loop, and the state of its loader."""

import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed
from loaders import on_cpu
from pinfeed.loaders.stats import LoopStats
from pinfeed.samplers import ShuffleSampler
from programs import run_program


def sleeping(count, seconds):
    for _ in range(count):
        time.sleep(seconds)
        yield torch.zeros(10)


def test_stats():
    batches = on_cpu([])
    assert batches.stats() == (0, 0, 0, 0, 0, 0)

    start = time.perf_counter()
    batches = on_cpu(sleeping(10, 0.01))
    list(batches)
    elapsed = time.perf_counter() - start
    stats = batches.stats()
    assert (stats.batches, stats.bytes) == (10, 0)
    assert 0.1 < stats.waiting_for_loader <= sum(stats[2:5]) <= elapsed
    assert 0.1 < stats.waited <= elapsed
    assert str(stats).startswith("10 batches in 0.")
    assert batches.stats() == stats  # time after the loop doesn't count

    batches = on_cpu([1, 2, 3])
    list(batches)
    for _ in batches:
        break
    assert batches.stats().batches == 1  # of the last loop


def test_stats_of_a_loop_that_waits():
    batches = on_cpu(range(10))
    loop = iter(batches)
    next(loop)
    for seconds in (0.01, 0.02):
        while batches.stats().waiting_for_consumer < seconds:
            time.sleep(0.01)  # the watchdog ends it
    loop.close()


def test_stats_in_one_line():
    assert str(LoopStats(0, 0, 0, 0, 0)) == "no batch yet"
    for times, bottleneck in (((0, 0, 0), None), ((3, 2, 1), "loader"), ((2, 3, 1), "copy")):
        assert LoopStats(1, 0, *times).bottleneck == bottleneck
    assert str(LoopStats(9, 0, 6.0, 1.0, 3.0, 5.0)) == (
        "9 batches in 10.0 s; the loop waited 50% of it "
        "(the thread: loader 60%, copy 10%, consumer 30%)"
    )


# State.


class Stateful:
    """A loader that can resume."""

    def __init__(self, count=10):
        self.count, self.position = count, 0

    def __iter__(self):
        while self.position < self.count:
            self.position += 1
            yield self.position - 1
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def test_a_rank_without_batches_has_a_state():
    def new_loader():
        sampler = ShuffleSampler(1, 2, uneven="keep", rank=1, world_size=2)
        return on_cpu(DataLoader(range(1), batch_sampler=sampler))

    loader, resumed = new_loader(), new_loader()
    assert list(loader) == []
    resumed.load_state_dict(loader.state_dict())
    assert (list(resumed), resumed.batch_sampler.epoch) == ([], 2)


@pytest.mark.parametrize("received", [0, 5])
def test_an_interrupt_during_the_first_batch_loses_no_batch(received):
    class Interrupted(torch.utils.data.Dataset):
        is_interrupted = False

        def __getitem__(self, index):
            if self.is_interrupted:
                raise KeyboardInterrupt
            return index

    def new_loader():
        return on_cpu(DataLoader(dataset, batch_sampler=ShuffleSampler(40, 4)))

    dataset = Interrupted()
    loader = new_loader()
    loop = iter(loader)
    seen = [next(loop).tolist() for _ in range(received)]
    loop.close()
    state = (loader if received else loader.batch_sampler).state_dict()
    loader = new_loader()
    loader.load_state_dict(state)
    dataset.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    assert loader.state_dict()["consumed"] == 4 * received
    dataset.is_interrupted = False
    resumed = new_loader()
    resumed.load_state_dict(loader.state_dict())
    batches = [*seen, *(batch.tolist() for batch in resumed)]
    assert sorted(sample for batch in batches for sample in batch) == list(range(40))


@pytest.mark.parametrize("goes_on", [True, False])
def test_loading_a_state_during_a_loop(goes_on):
    batches = on_cpu(Stateful(), prefetch=1)
    loop = iter(batches)
    next(loop)
    batches.load_state_dict({"position": 7})
    if goes_on:
        with pytest.raises(RuntimeError, match="a state was loaded; begin a new loop after load"):
            next(loop)
    loop.close()
    batches.load_state_dict({"position": 7})
    assert batches.state_dict() == {"position": 7}
    assert list(batches) == [7, 8, 9]


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_a_torchdata_state_during_a_loop(workers):
    """The loop's thread prefetches, and requests states from the loader until it ends."""
    sampler = ShuffleSampler(80, 4)
    loader = StatefulDataLoader(np.arange(80), batch_sampler=sampler, num_workers=workers)
    batches = on_cpu(loader, prefetch=3)
    plan = ShuffleSampler(80, 4)
    order, following = ([batch.tolist() for batch in plan] for _ in range(2))
    loop = iter(batches)
    seen = [next(loop).tolist() for _ in range(3)]
    state = batches.state_dict()
    for loaded in (state, [state]):
        batches.load_state_dict(loaded)
        loop = iter(batches)
        assert seen + [next(loop).tolist() for _ in range(4)] == order[:7]
    batches.load_state_dict(state)
    assert seen + [batch.tolist() for batch in batches] == order
    assert [batch.tolist() for batch in batches] == following


def test_a_failing_state_raises_when_requested():
    class Broken(Stateful):
        def state_dict(self):
            if self.position == 3:
                raise NotImplementedError("no state")
            return super().state_dict()

    batches = on_cpu(Broken())
    for number in batches:
        if number == 2:
            with pytest.raises(RuntimeError, match=r"state_dict\(\) failed .*no state") as caught:
                batches.state_dict()
            assert type(caught.value.__cause__) is NotImplementedError
        else:
            assert batches.state_dict() == {"position": number + 1}
    assert batches.state_dict() == {"position": 0}


@pytest.mark.parametrize(
    ("place", "saved"), [("iter", "{'position': 0}"), ("batch 0", "True"), ("sending", "True")]
)
def test_a_state_in_a_signal_handler(place, saved):
    assert run_program("state_in_a_handler", place, timeout=60) == f"{saved}\n"


def test_a_loader_without_a_state():
    """The object named in the message has a state."""
    loader = pinfeed.DeviceLoader(DataLoader(np.arange(8), 4, shuffle=True), "cpu")
    for name in ("state_dict", "load_state_dict"):
        assert not hasattr(loader, name)
        with pytest.raises(AttributeError, match=f"the DataLoader has no {name}; use a Stateful"):
            getattr(loader, name)
    for other in (
        StatefulDataLoader(np.arange(8), 4),
        DataLoader(np.arange(8), batch_sampler=ShuffleSampler(8, 4)),
    ):
        loader = pinfeed.DeviceLoader(other, "cpu")
        loader.load_state_dict(loader.state_dict())
