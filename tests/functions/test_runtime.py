"""Threads, instruction sets and the buffer pool, as Python sees them."""

import os
import threading

import pytest
import torch

import pinfeed
from arrays import assert_same_bits, random_array
from programs import run_python

# Outputs of this batch are large enough for the pool, which leaves small ones to malloc.
IMAGES = random_array((4, 64, 96, 3))


def normalize(kind="ndarray", images=IMAGES):
    return pinfeed.normalize(images if kind == "ndarray" else torch.from_numpy(images), 0.5, 0.25)


def address(array):
    return array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data


@pytest.fixture
def as_torch_has_it():
    """The number of threads that pinfeed uses unless told otherwise; restored after the test."""
    pinfeed.set_num_threads(None)
    yield torch.get_num_threads()
    pinfeed.set_num_threads(None)


class TestThreads:
    def test_follow_torch_until_set(self, as_torch_has_it):
        assert pinfeed.get_num_threads() == as_torch_has_it
        pinfeed.set_num_threads(5)
        assert pinfeed.get_num_threads() == 5
        pinfeed.set_num_threads(None)
        assert pinfeed.get_num_threads() == as_torch_has_it

    @pytest.mark.parametrize("count", [0, -1, 2**70, 1.5, "2", [1]], ids=repr)
    def test_at_least_one_and_a_sane_number(self, count, as_torch_has_it):
        error = ValueError if isinstance(count, int) else TypeError
        message = f"count must be .* got {count}" if error is ValueError else "integer"
        with pytest.raises(error, match=message):
            pinfeed.set_num_threads(count)
        assert pinfeed.get_num_threads() == as_torch_has_it

    @pytest.mark.usefixtures("as_torch_has_it")
    def test_more_than_there_are(self):
        expected = normalize()
        pinfeed.set_num_threads(10_000)
        assert_same_bits(normalize(), expected)

    def test_one_in_a_worker(self):
        loader = torch.utils.data.DataLoader(
            range(2), batch_size=None, num_workers=1, collate_fn=_num_threads_here
        )
        assert list(loader) == [1, 1]


def _num_threads_here(_):
    return pinfeed.get_num_threads()


class TestIsa:
    def test_the_best_is_active_and_scalar_is_always_there(self):
        isa = pinfeed.build_config()["isa"]
        assert isa["active"] == isa["available"][0]
        assert isa["available"][-1] == "scalar"
        assert set(isa["available"]) <= set(isa["compiled"])

    def test_the_one_before_comes_back(self):
        before = pinfeed.build_config()["isa"]["active"]
        with pinfeed.use_isa("scalar"):
            with pinfeed.use_isa(before):
                assert pinfeed.build_config()["isa"]["active"] == before
            assert pinfeed.build_config()["isa"]["active"] == "scalar"
        assert pinfeed.build_config()["isa"]["active"] == before
        with pytest.raises(KeyError), pinfeed.use_isa("scalar"):
            raise KeyError
        assert pinfeed.build_config()["isa"]["active"] == before

    @pytest.mark.parametrize("name", ["sse9", "", "SCALAR", "scalar "])
    def test_unknown(self, name):
        before = pinfeed.build_config()["isa"]["active"]
        with (
            pytest.raises(ValueError, match=f"use_isa: name must be one of .*'scalar'.*{name!r}"),
            pinfeed.use_isa(name),
        ):
            pytest.fail("must not be entered")
        assert pinfeed.build_config()["isa"]["active"] == before


def test_build_config():
    config = pinfeed.build_config()
    assert config["version"] == pinfeed.__version__
    assert config["compiler"]


@pytest.mark.parametrize("kind", ["ndarray", "tensor"])
class TestPool:
    """What a batch lies in serves again once the batch is dropped, the last one first."""

    def test_a_dropped_buffer_is_reused(self, kind):
        first = normalize(kind)
        place = address(first)
        assert place % os.sysconf("SC_PAGESIZE") == 0
        del first
        assert address(normalize(kind)) == place

    def test_buffers_live_as_long_as_their_batches(self, kind):
        batches = [normalize(kind) for _ in range(5)]
        places = {address(batch) for batch in batches}
        assert len(places) == 5
        for batch in batches:
            assert_same_bits(batch, batches[0])
        del batch
        thread = threading.Thread(target=batches.clear)  # they die on any thread
        thread.start()
        thread.join()
        assert {address(batch) for batch in [normalize(kind) for _ in range(5)]} == places

    def test_an_error_leaves_no_buffer_behind(self, kind):
        images = IMAGES if kind == "ndarray" else torch.from_numpy(IMAGES)
        place = address(normalize(kind))
        for _ in range(10):
            with pytest.raises(ValueError, match="channels"):
                pinfeed.normalize(images, [0.5] * 7)
        assert address(normalize(kind)) == place


def test_results_are_the_same_in_poisoned_memory(monkeypatch):
    # Every function writes all of its output, so the poison itself is never seen from here; the
    # native tests of the pool look at it.
    code = """
import hashlib, numpy as np, pinfeed
digest = hashlib.sha256()
for shape in [(2, 5, 7, 3), (4, 65, 97, 3), (3, 601, 803, 3)]:
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    for _ in range(2):  # a new buffer, then a used one
        digest.update(pinfeed.normalize(images[:, :, ::-1], 0.5, 0.25, dtype=np.float16))
        digest.update(pinfeed.permute(images))
        digest.update(pinfeed.permute(images.astype(np.float64)))
        digest.update(pinfeed.gather(images, [1, 0, -1]))
        digest.update(pinfeed.gather(images[:, 1:], [1, 0, -1]))
        digest.update(pinfeed.Collate(pinfeed.Image(0.5))(list(images)).numpy())
        digest.update(pinfeed.Collate()(pinfeed.ArrayDataset(images).__getitems__([1, 0])).numpy())
        digest.update(pinfeed.pad([*images, images[0, :2]], lengths=False))
print(digest.hexdigest())
"""
    expected = run_python(code)
    monkeypatch.setenv("PINFEED_DEBUG", "1")
    assert run_python(code, fresh=True) == expected
