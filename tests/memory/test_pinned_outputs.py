"""Batches that Collate writes into pinned memory, without a device.

The tests record allocations instead of pinning; `tests/gpu` uses a device.
"""

import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from pinfeed import Collate, Image, Jagged, Keep, Pad, Stack
from pinfeed.loaders.transfer import tensors_in
from pinfeed.memory import outputs
from programs import run_program
from samples import assert_same
from worker_memory import in_worker_memory


class PinnedMemory:
    """Replaces torch's allocator of pinned memory.

    Attributes:
        tensors: All allocations, which stay alive.
        left: Number of allocations that still succeed. None: no limit.
    """

    def __init__(self):
        self.tensors = []
        self.left = None

    def allocate(self, shape, dtype):
        if self.left is not None and len(self.tensors) >= self.left:
            raise RuntimeError("CUDA error: out of memory")
        self.tensors.append(torch.full(shape, 1, dtype=dtype))
        return self.tensors[-1]

    def has(self, tensor):
        return any(
            tensor.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
            for one in self.tensors
        )


@pytest.fixture
def memory(monkeypatch):
    memory = PinnedMemory()
    monkeypatch.setattr(outputs, "is_accelerator_in_use", lambda: True)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(outputs, "torch_pinned", memory.allocate)
    monkeypatch.setattr(outputs, "_is_refused", False)
    return memory


def sample(number):
    rng = np.random.default_rng(number)
    return {
        "image": rng.integers(0, 256, (5, 6, 3), np.uint8),
        "photo": rng.integers(0, 256, (5 + number, 6, 3), np.uint8),
        "row": rng.random(7, np.float32),
        "tokens": list(range(number + 1)),
        "values": torch.arange(number + 1.0),
        "label": number,
        "weight": float(number),
        "flag": bool(number % 2),
        "scalar": torch.tensor(number),
        "many": torch.full((3, 4), number),
        "name": f"sample {number}",
        "object": {number},
    }


SPEC = {
    "image": Image(0.5, 0.25, channels_last=True),
    "photo": Image(0.5, 0.25, pad_value=0, sizes="sizes", mask="seen"),
    "tokens": Pad(pad_value=-1, mask="attention_mask", multiple_of=4),
    "values": Jagged(),
    "weight": Stack(torch.float64),
    "object": Keep(),
}
SAMPLES = [sample(i) for i in range(6)]


@pytest.mark.parametrize("pin", ["auto", True])
def test_all_tensors_of_a_batch_are_pinned(pin, memory):
    batch = Collate(SPEC, pin_memory=pin)(SAMPLES)
    tensors = tensors_in(batch)
    assert len(tensors) >= 14
    assert all(memory.has(tensor) for tensor in tensors)
    assert_same(batch, Collate(SPEC, pin_memory=False)(SAMPLES))
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)


def test_rows_of_arrays_are_pinned(memory):
    arrays = {"x": np.arange(24.0).reshape(8, 3), "y": np.arange(8)}
    loader = DataLoader(pinfeed.ArrayDataset(arrays), 4, collate_fn=Collate())
    batches = list(loader)
    assert all(memory.has(tensor) for tensor in tensors_in(batches))
    assert len(memory.tensors) == 4
    assert_same(batches[1]["x"], torch.from_numpy(arrays["x"][4:]))


@pytest.mark.parametrize("left", [0, 1, 5])
def test_failing_allocations(left, memory):
    memory.left = left
    collate = Collate(SPEC)
    with pytest.warns(RuntimeWarning, match=r"could not be pinned.*out of memory") as caught:
        batch = collate(SAMPLES)
    assert [warning.category for warning in caught].count(RuntimeWarning) == 1
    assert_same(batch, Collate(SPEC, pin_memory=False)(SAMPLES))
    assert len(memory.tensors) == left
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(collate(SAMPLES), batch)
    memory.left = None  # no second request
    collate(SAMPLES)
    assert len(memory.tensors) == left


def test_nothing_is_pinned_by_default(memory):
    Collate(SPEC, pin_memory=False)(SAMPLES)
    pinfeed.functional.pad([[1], [2, 3]])
    pinfeed.functional.normalize(torch.zeros(2, 4, 4, 3, dtype=torch.uint8))
    assert not memory.tensors


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has worker memory")
@pytest.mark.parametrize("pin", ["auto", True])
def test_workers_write_into_worker_memory(pin, memory):
    loader = DataLoader(
        [sample(i) | {"row": np.full(9000, i)} for i in range(6)], 3, collate_fn=Collate(SPEC, pin_memory=pin), num_workers=1, timeout=60,
        multiprocessing_context="fork",
    )  # fmt: skip
    for batch in loader:
        assert in_worker_memory(batch["row"])


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_pinning_without_an_accelerator():
    collate = Collate(pin_memory=True)
    with pytest.raises(
        RuntimeError, match=r"pin_memory=True needs an accelerator.*leave pin_memory out"
    ):
        collate([1, 2])
    assert_same(Collate()([np.ones(2)] * 2), torch.ones(2, 2, dtype=torch.float64))


@pytest.mark.parametrize("pin", [None, "yes", 2, "True"])
def test_invalid_values_of_pin(pin):
    with pytest.raises(ValueError, match="pin_memory must be True, False or 'auto'"):
        Collate(pin_memory=pin)


def test_pin_is_stored():
    assert pickle.loads(pickle.dumps(Collate(pin_memory=True))).pin_memory is True
    assert repr(Collate(Stack(), pin_memory=False)) == "Collate(Stack(), pin_memory=False)"
    assert repr(Collate(pin_memory="auto")) == "Collate()"


def test_no_device_is_initialized():
    assert run_program("no_device_initialized") == "False False\n"
