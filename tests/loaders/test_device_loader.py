"""DeviceLoader on the CPU: a thread that runs any loader ahead."""

import contextlib
import contextvars
import copy
import pickle
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pinfeed
from loaders import Generated, on_cpu
from messages import check
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.samplers import ShuffleSampler
from pinfeed.structure import entries
from programs import run_program
from samples import STRUCTURES


@pytest.mark.parametrize("structure", STRUCTURES)
def test_batches_are_the_loaders_objects(structure):
    batch = STRUCTURES[structure](torch.arange(3), np.arange(2))
    (result,) = on_cpu([batch])
    assert result is batch


def test_uncollated_samples_are_the_entries():
    dataset = pinfeed.ArrayDataset({"x": torch.arange(8)})
    (rows,) = DataLoader(dataset, batch_size=8, collate_fn=lambda samples: samples)
    assert [int(entry) for _, entry in entries(rows)] == list(range(8))


# How far ahead.


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_at_most_prefetch_batches_ahead(depth):
    loader = Generated(30)
    for received, _ in enumerate(on_cpu(loader, prefetch=depth), 1):
        deadline = time.monotonic() + 60
        while loader.requests < min(received + depth, 30) and time.monotonic() < deadline:
            time.sleep(0)
        time.sleep(0.001)
        assert loader.requests == min(received + depth, 30)


def test_batches_are_released():
    alive = weakref.WeakSet()

    def loader():
        for _ in range(20):
            alive.add(batch := torch.zeros(3))
            yield batch
            del batch

    for batch in on_cpu(loader(), prefetch=2):
        time.sleep(0.002)
        del batch
        assert len(alive) <= 3  # two ahead, and the one in the generator
    assert len(alive) == 0


def test_a_batch_is_released_while_the_loader_builds_the_next():
    def loader():
        for _ in range(3):
            yield torch.zeros(3)
            gate.wait(10)

    gate = threading.Event()
    loop = iter(on_cpu(loader(), prefetch=1))
    gone = weakref.ref(next(loop))
    assert gone() is None
    gate.set()
    loop.close()


# Modes and threads of the loader.


class Modes:
    """An iterator that continues after an error, and yields the grad modes of its calls."""

    def __init__(self):
        self.requests = 0

    def __iter__(self):
        self.thread = threading.current_thread()
        return self

    def __next__(self):
        self.requests += 1
        if self.requests == 1:
            raise LookupError
        if self.requests > 5:
            raise StopIteration
        tensor = torch.ones(2, 2, device="cpu", requires_grad=True) * 2
        kinds = torch.zeros(1).device.type, (tensor @ tensor).dtype
        cached = torch.is_autocast_cache_enabled()
        return tensor.requires_grad, tensor.is_inference(), *kinds, cached, VARIABLE.get()


VARIABLE = contextvars.ContextVar("variable", default="nothing")
USUAL = {"grad": True, "inference": False, "device": "cpu", "dtype": torch.float32}
USUAL |= {"cache": True, "variable": "something"}
BFLOAT16, HALF = torch.bfloat16, torch.float16


@pytest.mark.parametrize(
    ("modes", "changes"),
    [
        ([], {}),
        ([torch.no_grad], {"grad": False}),
        ([torch.inference_mode], {"grad": False, "inference": True}),
        ([lambda: torch.autocast("cpu", BFLOAT16)], {"dtype": BFLOAT16}),
        ([lambda: torch.autocast("cpu", HALF, cache_enabled=False)], {"dtype": HALF, "cache": False}),
        ([lambda: torch.autocast("cpu", HALF, enabled=False)], {}),
        ([lambda: torch.device("meta")], {"device": "meta"}),
        ([lambda: torch.device("meta"), lambda: torch.device("cpu")], {}),
    ],
)  # fmt: skip
def test_the_loader_runs_with_the_modes_and_threads_of_the_consumer(modes, changes):
    token, loader = VARIABLE.set("something"), Modes()
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode())
        loop = iter(on_cpu(on_cpu(loader)))
        with pytest.raises(LookupError):
            next(loop)
        seen = list(loop)
    VARIABLE.reset(token)
    assert seen == [tuple((USUAL | changes).values())] * 4
    assert loader.thread is threading.current_thread()


def test_the_order_follows_from_the_seed():
    """First a sampler draws its seed from the global generator, later the loop does."""

    def epoch(wrap):
        torch.manual_seed(0)
        loader = wrap(DataLoader(TensorDataset(torch.arange(100)), 4, shuffle=True))
        return [[*batch.tolist(), float(torch.rand(()))] for (batch,) in loader]

    expected = epoch(lambda loader: loader)
    for _ in range(20):
        assert epoch(on_cpu) == expected


# Length, attributes and repr.


def test_length_and_attributes_come_from_the_loader():
    dataset = TensorDataset(torch.arange(10))
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=0)
    loader = DataLoader(dataset, 2, sampler=sampler)
    batches = on_cpu(loader)
    assert len(batches) == len(loader) == 3
    assert batches.dataset is dataset
    assert batches.sampler is sampler
    assert batches.loader is loader
    assert not hasattr(batches, "state_dict")
    batches.set_epoch(3)
    assert sampler.epoch == 3
    with pytest.raises(
        AttributeError, match="neither the DataLoader nor its samplers have set_epoch"
    ):
        _ = on_cpu(DataLoader(dataset, 2)).set_epoch
    loader.set_epoch = lambda epoch: sampler.set_epoch(epoch + 1)  # the loader's own comes first
    batches.set_epoch(3)
    assert sampler.epoch == 4
    inner = torch.utils.data.BatchSampler(sampler, 2, drop_last=False)
    on_cpu(DataLoader(dataset, batch_sampler=inner)).set_epoch(7)
    assert sampler.epoch == 7


def test_set_epoch_of_a_batch_sampler():
    batches = pinfeed.from_numpy(np.arange(20), 4, shuffle=True, seed=0, device="cpu")
    epochs = [torch.cat([*batches]).tolist() for _ in range(3)]
    for epoch in (2, 0, 1):
        batches.set_epoch(epoch)
        assert torch.cat([*batches]).tolist() == epochs[epoch]
    with pytest.raises(AttributeError, match="'DataLoader' object has no attribute 'nothing'"):
        _ = batches.nothing
    with pytest.raises(TypeError, match="has no len"):
        len(on_cpu(i for i in range(3)))


class Repeated(DeviceLoader):
    """A subclass with its own arguments, and a state."""

    def __init__(self, *, times):
        sampler = ShuffleSampler(2 * times, 1, shuffle=False)
        super().__init__(DataLoader(range(2 * times), batch_sampler=sampler), "cpu", prefetch=3)
        self.times = times


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda batches: pickle.loads(pickle.dumps(batches))]
)
def test_copies_of_a_subclass(copied):
    batches = Repeated(times=2)
    batches.name = "training"
    running = iter(batches)
    next(running)
    state = batches.state_dict()
    other = copied(batches)
    assert type(other) is Repeated
    assert (other.times, other.name, other.prefetch) == (2, "training", 3)
    assert list(running) == [1, 2, 3]
    batches.load_state_dict(state)
    other = copied(on_cpu(batches))
    assert other.state_dict() == state
    assert list(other) == [1, 2, 3]
    if copied is not copy.copy:  # which shares the sampler
        assert list(batches) == [1, 2, 3]


def test_repr():
    text = repr(DeviceLoader([1], fields=pinfeed.Pad(), prefetch=4))
    assert text.startswith("DeviceLoader([1], device=None, fields=Pad(), ")
    assert text.endswith("prefetch=4)")


# Invalid arguments.


DATASET = pinfeed.ArrayDataset(np.zeros((4, 2)))
NO_LOADER, NO_DEVICE = "loader must be an iterable of batches, got", "device must be a torch.device"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((None,), TypeError, [f"{NO_LOADER} NoneType"]),
        ((3,), TypeError, [f"{NO_LOADER} int"]),
        ((DATASET,), TypeError, [f"{NO_LOADER} ArrayDataset, ", "pass DataLoader(dataset, batch_size"]),
        (([], "gpu"), ValueError, [NO_DEVICE]),
        (([], "cuda:-1"), ValueError, [NO_DEVICE]),
        (([], -1), ValueError, [NO_DEVICE]),
        (([], 1.5), TypeError, [NO_DEVICE]),
        (([], (pinfeed.Image(),)), TypeError, [NO_DEVICE, " pass fields by name: fields="]),
        (([], None, None, 0), ValueError, ["prefetch must be at least 1"]),
        (([], None, None, 2.0), TypeError, ["prefetch must be an integer"]),
        (([], None, None, True), TypeError, ["prefetch must be an integer"]),
    ],
)  # fmt: skip
def test_bad_arguments(arguments, error, words):
    check(lambda: DeviceLoader(*arguments), error, *words)


@pytest.mark.parametrize("device", ["meta", "cuda:99", "xpu:99"])
def test_missing_devices(device):
    loader = Generated()
    words = f"device '{device}' is not available", "or pass 'cpu'"
    check(lambda: iter(DeviceLoader(loader, device)), ValueError, *words)
    assert loader.requests == 0


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
@pytest.mark.parametrize("reason", ["no NVIDIA driver", "the NVIDIA driver is too old\nUpdate it."])
def test_errors_explain_why_a_device_cannot_be_used(reason, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError(reason)

    batches = DeviceLoader([], "cuda")
    monkeypatch.setattr(torch, "empty", refuse)
    message = f"no accelerator ({reason.splitlines()[0]}); leave device out"
    check(lambda: iter(batches), ValueError, message)


def test_no_device_is_touched_before_a_loop_begins():
    run_program("no_device_touched", fresh=True)
