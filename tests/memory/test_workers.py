"""DataLoader workers, forks, threads and interrupts: equal bits everywhere, and nothing hangs.

Loaders have a timeout; other code that could hang runs in its own process with a timeout.
"""

import multiprocessing
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

import pinfeed
from pinfeed.memory.worker import SMALL_BYTES, worker_memory
from pinfeed.runtime import is_worker_process
from programs import run_program
from samples import FrozenRecord, Point, assert_same
from worker_memory import in_worker_memory

COUNT, BATCH = 60, 8
COLLATE = pinfeed.Collate(
    {
        "image": pinfeed.Image(0.5, 0.25),
        "half": pinfeed.Image(0.5, 0.25, dtype=torch.float16, channels_last=True),
        "pair": Point(pinfeed.Stack(torch.float32), None),
        "tokens": pinfeed.Pad(pad_value=-1, multiple_of=8, mask="mask", lengths="lengths"),
        "texts": (pinfeed.Pad(dtype=torch.bfloat16, side="left"), pinfeed.Jagged()),
    }
)


@pytest.fixture(scope="module", autouse=True)
def modules_in_the_fork_server():
    """Preloads pinfeed, so that workers of the fork server start as fast as forks."""
    multiprocessing.set_forkserver_preload(["pinfeed", "samples"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays")
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 32, 24, 3), np.uint8)
    np.save(path / "images.npy", images)
    return path


@pytest.fixture(scope="module")
def dataset(folder):
    images = np.load(folder / "images.npy", mmap_mode="r")
    rng = np.random.default_rng(0)
    tokens = pinfeed.RaggedArray.from_sequences(
        rng.integers(0, 99, length) for length in rng.integers(0, 3000, COUNT)
    )
    reals = pinfeed.RaggedArray(rng.random((len(tokens.values), 2), np.float32), tokens.offsets)
    return pinfeed.ArrayDataset(
        {
            "image": folder / "images.npy",
            "half": images[:, ::-1, 2:-2],
            "pair": Point(np.arange(COUNT), torch.arange(COUNT).to(torch.bfloat16)),
            "record": FrozenRecord(
                np.ones((COUNT, 200, 100)) * np.arange(COUNT)[:, None, None], images
            ),
            "tokens": tokens,
            "texts": (reals, tokens),
        }
    )


@pytest.fixture(scope="module")
def expected(dataset):
    return list(DataLoader(dataset, BATCH, collate_fn=COLLATE))


@pytest.fixture(autouse=True)
def threads_that_the_parent_used():
    """Makes the parent use native threads and buffers before workers start."""
    pinfeed.set_num_threads(2)
    pinfeed.functional.normalize(np.ones((32, 128, 128, 3), np.uint8))
    yield
    pinfeed.set_num_threads(None)


def loader(dataset, method, workers, **options):
    options = {"collate_fn": COLLATE, "batch_size": BATCH} | options
    if workers > 0:
        options |= {"multiprocessing_context": method, "timeout": 60}
    return DataLoader(dataset, num_workers=workers, **options)


@pytest.mark.parametrize(
    ("method", "workers", "persistent"),
    [
        ("fork", 0, False),
        ("fork", 1, False),
        ("fork", 4, True),
        pytest.param("forkserver", 3, True, marks=pytest.mark.slow),
        ("spawn", 1, True),
    ],
)
def test_batches_do_not_depend_on_workers(method, workers, persistent, dataset, expected):
    loaded = loader(dataset, method, workers, persistent_workers=persistent)
    for _ in range(2):
        batches = list(loaded)
        assert_same(batches, expected)
        if workers > 0:  # the main process reads the worker's memory
            assert all(in_worker_memory(batch["image"]) for batch in batches)


def facts(_):
    """Returns, in a worker, its number of threads, and the entries in its slots or too small for them."""
    memory = worker_memory()
    samples = get_worker_info().dataset.__getitems__(range(BATCH))
    batch = COLLATE(samples)
    padded, jagged = batch["texts"]
    photos = [np.zeros((2, 3, 3), np.uint8), np.zeros((1, 4, 3), np.uint8)]
    boxes = pinfeed.Collate(pinfeed.Image(pad_value=0, sizes=True, mask=True))(photos)
    parts = [*padded, *jagged, *boxes, *(batch[key] for key in ("tokens", "mask", "lengths"))]
    entries = {
        "image": batch["image"],
        "channels_last": batch["half"],
        "converted": batch["pair"].x,
        "bfloat16": batch["pair"].y,
        "array": batch["record"].x,
        "image of a list": COLLATE(list(samples))["image"],
        "tokens of a list": COLLATE(list(samples))["tokens"],
        "array of a list": pinfeed.Collate()([np.ones((300, 300))] * 2),
        "tensors of a list": pinfeed.Collate()([torch.ones(300, 300)] * 2),
        **{f"part {i}": part for i, part in enumerate(parts) if part is not None},
    }
    result = {
        name: entry.nbytes <= SMALL_BYTES
        or memory._find(entry.data_ptr(), entry.nbytes) is not None
        for name, entry in entries.items()
    }
    return [
        pinfeed.get_num_threads(),
        result,
        sum(entry.nbytes > SMALL_BYTES for entry in entries.values()),
    ]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_outputs_of_workers_are_in_worker_memory(method, dataset):
    threads, result, large = next(iter(loader(dataset, method, 1, collate_fn=facts)))
    assert threads == 1
    assert result == dict.fromkeys(result, True)
    assert large >= 8
    assert pinfeed.get_num_threads() == 2


def test_batches_outlive_their_workers(dataset, expected):
    kept = list(loader(dataset, "fork", 2))
    list(loader(dataset, "fork", 2))
    assert_same(kept, expected)


def test_worker_errors_arrive():
    shapes = [np.ones((3, 2))] * 4 + [np.ones((3, 1))]
    batches = loader([{"x": x} for x in shapes], "fork", 1, collate_fn=pinfeed.Collate())
    with pytest.raises(ValueError, match=r"entry \['x'\] of sample 4: expected shape \(3, 2\)"):
        list(batches)


linux_only = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")


@linux_only
@pytest.mark.parametrize(
    ("workers", "epochs", "persistent", "ahead"),
    [
        (0, 200, 0, 0),
        (0, 500, 0, 1),
        (2, 50, 1, 0),
        pytest.param(2, 1000, 1, 0, marks=pytest.mark.slow),
        pytest.param(2, 60, 0, 0, marks=pytest.mark.slow),
    ],
)
def test_many_epochs_without_growth(workers, epochs, persistent, ahead):
    run_program(
        "epochs_without_growth", *map(str, (workers, epochs, persistent, ahead)), timeout=200
    )


@pytest.mark.parametrize("how", ["rows", "samples", "rows of a file"])
def test_an_interrupt_during_a_batch(how, tmp_path):
    assert run_program("interrupted_batch", how, str(tmp_path / "x.npy")) == "interrupted\n"


def test_worker_threads_of_a_loader_belong_to_the_main_process(dataset, monkeypatch):
    """torch's thread workers have their own worker info, one per thread."""
    info = threading.local()
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: getattr(info, "value", None))

    def work(number):
        info.value = SimpleNamespace(id=number, num_workers=2, seed=number, dataset=dataset)
        assert torch.utils.data.get_worker_info().id == number
        batch = COLLATE(dataset.__getitems__([0, 1]))
        return pinfeed.get_num_threads(), batch["image"].is_shared(), is_worker_process()

    pinfeed.set_num_threads(3)
    try:
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(work, range(2))) == [(3, False, False)] * 2
    finally:
        pinfeed.set_num_threads(None)


def test_workers_give_no_warning(dataset):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        COLLATE(dataset.__getitems__([0, 1]))
        COLLATE(list(dataset.__getitems__([0, 1])))
