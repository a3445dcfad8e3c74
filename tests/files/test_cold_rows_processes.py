"""Rows of files in workers, threads and forks, in bounded memory."""

import threading

import numpy as np
import pytest

import pinfeed
from arrays import random_array
from cold_files import bring_to, every_temperature, saved
from programs import run_program

pytestmark = pytest.mark.kernels


@every_temperature
def test_in_threads(temperature, tmp_path):
    array = random_array((2000, 500), np.int16)
    path = saved(tmp_path, array)
    dataset, collate = pinfeed.ArrayDataset(path), pinfeed.Collate()
    bring_to(temperature, dataset, path)
    wrong = []

    def read(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            indices = rng.integers(0, 2000, 100)
            if not np.array_equal(collate(dataset.__getitems__(indices)).numpy(), array[indices]):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.processes
def test_memory_stays_bounded(tmp_path):
    row, count = 150_000, 1800
    path = tmp_path / "large.npy"
    large = np.lib.format.open_memmap(path, "w+", np.uint8, (count, row))
    for start in range(0, count, 100):
        large[start : start + 100] = random_array((100, row), np.uint8, start)
    del large
    grown = int(run_program("streamed_epochs", str(path), timeout=300))
    batch = 64 * row
    assert grown < 2 * batch + (16 << 20)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("place", ["main", "thread"])
def test_forks_while_threads_gather(place, tmp_path):
    assert run_program("forks_beside_gathers", str(tmp_path), place, timeout=120).split() == [
        "done"
    ]
