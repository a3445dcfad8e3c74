"""Threads, instruction sets and the buffer pool."""

import sys
import threading
import time

import numpy as np
import pytest
import torch

import pinfeed
from arrays import assert_same_bits, random_array
from pinfeed import _core

# Large enough for the pool, which leaves small outputs to malloc.
IMAGES = random_array((4, 64, 96, 3))


def normalize(kind="ndarray", images=IMAGES):
    return pinfeed.functional.normalize(
        images if kind == "ndarray" else torch.from_numpy(images), 0.5, 0.25
    )


@pytest.fixture
def default_threads():
    """Uses pinfeed's default number of threads; restores it after the test."""
    pinfeed.set_num_threads(None)
    yield torch.get_num_threads()
    pinfeed.set_num_threads(None)


class TestThreads:
    def test_threads_follow_torch_until_set(self, default_threads):
        assert pinfeed.get_num_threads() == default_threads
        pinfeed.set_num_threads(5)
        assert pinfeed.get_num_threads() == 5
        pinfeed.set_num_threads(None)
        assert pinfeed.get_num_threads() == default_threads

    @pytest.mark.parametrize("count", [0, -1, 2**70, 1.5, "2", [1]], ids=repr)
    def test_thread_counts_must_be_positive_and_sane(self, count, default_threads):
        error = ValueError if isinstance(count, int) else TypeError
        message = f"count must be .* got {count}" if error is ValueError else "integer"
        with pytest.raises(error, match=message):
            pinfeed.set_num_threads(count)
        assert pinfeed.get_num_threads() == default_threads

    @pytest.mark.usefixtures("default_threads")
    def test_more_threads_than_cpus(self):
        expected = normalize()
        pinfeed.set_num_threads(10_000)
        assert_same_bits(normalize(), expected)

    def test_one_thread_in_a_worker(self):
        loader = torch.utils.data.DataLoader(
            range(2), batch_size=None, num_workers=1, collate_fn=_num_threads_here
        )
        assert list(loader) == [1, 1]


def releases_the_gil(run, calls=100):
    """Returns whether a thread that waits for the GIL gets it during this number of calls of `run`."""
    run()  # first imports and lookups
    interval, go, has_run = sys.getswitchinterval(), threading.Lock(), threading.Event()

    def wait():
        with go:
            has_run.set()

    go.acquire()
    thread = threading.Thread(target=wait)
    sys.setswitchinterval(1000)  # nobody has to release it
    try:
        thread.start()
        go.release()
        start = time.perf_counter()
        while time.perf_counter() < start + 0.02:
            pass  # meanwhile the thread wakes up
        for _ in range(calls):
            run()
            if has_run.is_set():
                return True
        return False
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="needs the GIL")
class TestGil:
    # np.arange also releases the GIL, and so does torch when it frees a tensor.
    SMALL, ORDER = np.zeros((512, 256), np.float32), np.arange(512)  # 512 KiB

    def test_the_gil_is_held_for_a_small_batch(self):
        assert not releases_the_gil(lambda: pinfeed.functional.gather(self.SMALL, self.ORDER))

    def test_the_gil_is_held_for_a_small_batch_of_a_file_in_memory(self, tmp_path):
        np.save(tmp_path / "rows.npy", self.SMALL)
        dataset, collate = pinfeed.ArrayDataset(tmp_path / "rows.npy"), pinfeed.Collate()
        batches = []
        assert not releases_the_gil(
            lambda: batches.append(collate(dataset.__getitems__(self.ORDER)))
        )

    def test_the_gil_is_released_for_a_large_batch(self):
        images = np.zeros((64, 64, 64, 3), np.uint8)  # 3 MiB after normalization
        assert releases_the_gil(lambda: normalize(images=images), 10_000)


def _num_threads_here(_):
    return pinfeed.get_num_threads()


class TestIsa:
    def test_the_best_isa_is_active_and_scalar_always_exists(self):
        available = _core.available_isas()
        assert _core.active_isa() == available[0]
        assert available[-1] == "scalar"
        assert set(available) <= set(_core.compiled_isas())

    def test_the_previous_isa_is_restored(self):
        before = _core.active_isa()
        with pinfeed.testing.use_isa("scalar"):
            with pinfeed.testing.use_isa(before):
                assert _core.active_isa() == before
            assert _core.active_isa() == "scalar"
        assert _core.active_isa() == before
        with pytest.raises(KeyError), pinfeed.testing.use_isa("scalar"):
            raise KeyError
        assert _core.active_isa() == before

    @pytest.mark.parametrize("name", ["sse9", "", "SCALAR", "scalar "])
    def test_unknown_isa(self, name):
        before = _core.active_isa()
        with (
            pytest.raises(ValueError, match=f"use_isa: name must be one of .*'scalar'.*{name!r}"),
            pinfeed.testing.use_isa(name),
        ):
            pytest.fail("must not be entered")
        assert _core.active_isa() == before
