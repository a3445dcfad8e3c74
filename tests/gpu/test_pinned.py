"""Outputs of Collate in pinned memory, and batches of workers on their way to the device."""

import multiprocessing
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pinfeed import Collate, DeviceLoader, Image, Pad
from programs import run_program

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
def cuda_is_in_use():
    torch.cuda.init()
    torch.zeros(1, device="cuda")


def workers(dataset=SAMPLES, **options):
    method = options.pop("method", "fork")
    options = {"collate_fn": Collate(), "batch_size": 4, "num_workers": 2} | options
    return DataLoader(dataset, multiprocessing_context=method, timeout=120, **options)


# In this process.


def test_outputs_are_pinned():
    batch = Collate(SPEC)(MIXED)
    assert all(entry.is_pinned() for entry in [*batch["tokens"][:1], batch["image"], batch["y"]])
    assert not Collate(SPEC, pin_memory=False)(MIXED)["image"].is_pinned()


def test_dataloader_copies_no_pinned_batch_again():
    for batch in DataLoader(MIXED, 4, collate_fn=Collate({"tokens": Pad(lengths=False)})):
        for entry in batch.values():
            assert entry.pin_memory().data_ptr() == entry.data_ptr()


def test_pinning_in_collate_starts_no_device():
    run_program("pinning_starts_no_device", fresh=True, timeout=300)


# In workers.


@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_of_workers_are_pinned_on_request(pin_memory):
    for batch in workers(pin_memory=pin_memory):
        assert batch.is_pinned() == pin_memory


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_batches_of_workers_reach_the_device(method):
    """Streams sleep before they copy, while workers write the next batches."""
    batches = DeviceLoader(workers(SAMPLES * 4, method=method, prefetch_factor=1), "cuda")
    sums = []
    for batch in batches:
        torch.cuda._sleep(LONG // 50)
        sums.append(batch.sum((1, 2)))
    expected = [4 * (i % 16) + k for i in range(64) for k in range(4)]
    assert torch.cat(sums).tolist() == [value * 300 * 400 for value in expected]


def test_workers_touch_no_device():
    assert "cuda" not in multiprocessing.get_all_start_methods()
    for initialized in workers(_Initialized(), batch_size=1):
        assert not initialized.item()


class _Initialized:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.array(torch.cuda.is_initialized())


def test_pinning_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*fork.*")
        list(workers())
