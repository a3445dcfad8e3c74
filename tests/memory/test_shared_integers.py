"""Integers that processes share."""

import multiprocessing

import numpy as np
import pytest

from pinfeed import _core
from pinfeed.memory.shared_file import SharedIntegers

STEPS = 3000


def count(cells):
    for _ in range(STEPS):
        cells.increment(1)


def test_no_increment_of_several_processes_is_lost():
    cells = SharedIntegers([7, -1, 7])
    fork = multiprocessing.get_context("fork")
    jobs = [fork.Process(target=count, args=(cells,)) for _ in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert cells.values.tolist() == [7, 4 * STEPS - 1, 7]
    assert not cells.compare_exchange(0, 6, 8)
    assert cells.compare_exchange(0, 7, 8)
    assert cells.values.tolist() == [8, 4 * STEPS - 1, 7]


def test_arrays_of_other_types():
    with pytest.raises(IndexError):
        _core.compare_exchange(np.zeros(2, np.int64), 2, 0, 1)
    with pytest.raises(TypeError):
        _core.compare_exchange(np.zeros(2, np.int32), 0, 0, 1)
