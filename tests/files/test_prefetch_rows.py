"""Rows of the batch after the next: asked for in time, once, and without consequence."""

import ctypes
import mmap
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import pinfeed
from arrays import assert_same_bits, random_array
from cold_files import drop, saved
from loaders import no_thread_is_left, on_cpu, watchdog  # noqa: F401, fixtures

PAGE = mmap.PAGESIZE
ROW = 16 * PAGE


def cached_pages(path):
    """Which pages of a file are in memory."""
    size = path.stat().st_size
    flags = (ctypes.c_ubyte * -(-size // PAGE))()
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        failed = ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(size), flags)
        del start
    assert not failed
    return (np.frombuffer(flags, np.uint8) & 1).astype(bool)


def cold(path):
    drop(path)
    if cached_pages(path).any():
        pytest.skip("the temporary directory lies in a file system in memory")
    return path


HEADER = 128


def come_into_memory(dataset, asked, path, first, last, row=ROW):
    """Whether a file's rows [first, last) are read within some seconds once a dataset is asked for rows.

    A disk may be as fast as memory now and then. Then the rows that are looked at first seem to be there,
    and no more are asked for: it is tried again.
    """
    pages = slice((HEADER + first * row) // PAGE, -(-(HEADER + last * row) // PAGE))
    for _ in range(30):
        dataset.prefetch_rows(asked)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            if cached_pages(path)[pages].all():
                return True
            time.sleep(0.01)
        drop(path)
    return False


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no system call tells")


@needs_linux
def test_rows_come_into_memory_and_others_do_not(tmp_path):
    path = cold(saved(tmp_path, random_array((100, ROW), np.uint8)))
    dataset = pinfeed.ArrayDataset({"x": path, "y": np.arange(100)})
    for row in (3, 70):
        assert come_into_memory(dataset, [70, 3, 3], path, row, row + 1)
    assert cached_pages(path).sum() < 12 * 16


@needs_linux
def test_parts_sequences_and_chosen_rows_come_into_memory(tmp_path):
    array = random_array((100, ROW), np.uint8)
    paths = [saved(tmp_path, part) for part in np.split(array, 4)]
    dataset = pinfeed.ArrayDataset(pinfeed.ConcatArray(paths))
    cold(paths[2])
    assert come_into_memory(dataset, np.array([53]), paths[2], 3, 4)

    pinfeed.RaggedArray(array.ravel(), np.arange(101) * ROW).save(tmp_path / "ragged")
    ragged = pinfeed.ArrayDataset(pinfeed.RaggedArray.open(tmp_path / "ragged"))
    path = cold(tmp_path / "ragged" / "values.npy")
    assert come_into_memory(ragged, [40], path, 40, 41)


def test_what_reads_files_says_so(tmp_path):
    path = saved(tmp_path, np.arange(10))
    ragged = pinfeed.RaggedArray(np.load(path, mmap_mode="r"), np.arange(11))
    in_memory = pinfeed.RaggedArray(np.arange(10), np.arange(11))
    for array in (path, np.load(path, mmap_mode="r"), pinfeed.ConcatArray([path]), ragged):
        assert pinfeed.ArrayDataset((np.arange(10), array)).reads_files
    for array in (np.arange(10), torch.arange(10), pinfeed.ConcatArray([np.arange(10)]), in_memory):
        assert not pinfeed.ArrayDataset((np.arange(10), array)).reads_files


def test_in_memory_nothing_happens():
    dataset = pinfeed.ArrayDataset((np.arange(10), torch.arange(10)))
    dataset.prefetch_rows([1, -1])
    dataset.prefetch_rows([])
    dataset.prefetch_rows(np.array([], np.int64))


@pytest.mark.parametrize(
    ("indices", "error"), [([10], IndexError), ([-11], IndexError), ([0.5], TypeError)]
)
def test_indices_are_checked(indices, error, tmp_path):
    dataset = pinfeed.ArrayDataset(saved(tmp_path, np.arange(10)))
    with pytest.raises(error, match="ArrayDataset: ind"):
        dataset.prefetch_rows(indices)


def test_a_file_cut_short_is_named(tmp_path):
    path = saved(tmp_path, np.arange(10_000))
    dataset = pinfeed.ArrayDataset(path)
    with open(path, "r+b") as file:
        file.truncate(1000)
    with pytest.raises(OSError, match=r"npy: the file was cut short"):
        dataset.prefetch_rows([9_999])


@needs_linux
def test_rows_that_were_asked_for_are_not_hot(tmp_path):
    """Or their file would be mapped, and the next ones waited for page by page."""
    array = random_array((2000, 1000), np.uint8)
    path = cold(saved(tmp_path, array))
    dataset, collate = pinfeed.ArrayDataset(path), pinfeed.Collate()
    for start in range(0, 2000, 100):
        indices = np.arange(start, start + 100)
        assert come_into_memory(dataset, indices, path, start, start + 100, row=1000)
        batch = collate(dataset.__getitems__(indices))
        assert_same_bits(batch.numpy(), array[indices])
        drop(path)
    assert Path("/proc/self/maps").read_bytes().count(path.name.encode()) == 1  # NumPy's


# from_numpy asks for each batch while the one before it is made.


@pytest.fixture
def calls(monkeypatch):
    """What datasets are asked, in order."""
    calls = []

    def record(name, method):
        original = getattr(pinfeed.ArrayDataset, method)

        def recorded(self, indices):
            calls.append((name, list(indices)))
            return original(self, indices)

        monkeypatch.setattr(pinfeed.ArrayDataset, method, recorded)

    record("ask", "prefetch_rows")
    record("read", "__getitems__")
    return calls


def test_each_batch_is_asked_for_before_the_one_ahead_of_it_is_read(calls, tmp_path):
    for shuffle in (False, True):
        loader = pinfeed.from_numpy(saved(tmp_path, np.arange(7)), 3, shuffle=shuffle, device="cpu")
        for _ in range(2):
            calls.clear()
            first, second, third = [batch.tolist() for batch in loader]
            assert sorted(first + second + third) == list(range(7))
            assert calls == [
                ("ask", second),
                ("read", first),
                ("ask", third),
                ("read", second),
                ("read", third),
            ]


@pytest.mark.parametrize(
    ("is_file", "options"),
    [(False, {}), (True, {"prefetch_rows": False}), (True, {"num_workers": 1})],
)
def test_nothing_is_asked_otherwise(is_file, options, calls, tmp_path):
    array = saved(tmp_path, np.arange(7)) if is_file else np.arange(7)
    batches = pinfeed.from_numpy(array, 3, device="cpu", **options)
    assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [call for call in calls if call[0] == "ask"] == []


def test_an_error_of_asking_is_passed_over(monkeypatch, tmp_path):
    def fail(self, indices):
        raise OSError("no such disk")

    monkeypatch.setattr(pinfeed.ArrayDataset, "prefetch_rows", fail)
    batches = pinfeed.from_numpy(saved(tmp_path, np.arange(4)), 2, device="cpu")
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
