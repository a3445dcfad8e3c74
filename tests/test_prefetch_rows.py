"""Rows of the batch after the next: asked for in time, once, and without consequence."""

from __future__ import annotations

import ctypes
import mmap
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed
from arrays import assert_same_bits, random_array
from cold_files import drop, saved
from loaders import no_thread_is_left, on_cpu, watchdog  # noqa: F401, fixtures

PAGE = mmap.PAGESIZE
ROW = 16 * PAGE


def cached_pages(path: Path) -> npt.NDArray[np.bool_]:
    """Which pages of a file are in memory."""
    size = path.stat().st_size
    flags = (ctypes.c_ubyte * -(-size // PAGE))()
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        failed = ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(size), flags)
        del start
    assert not failed
    return (np.frombuffer(flags, np.uint8) & 1).astype(bool)


def cold(path: Path) -> Path:
    drop(path)
    if cached_pages(path).any():
        pytest.skip("the temporary directory lies in a file system in memory")
    return path


def come_into_memory(path: Path, first: int, last: int) -> bool:
    """Whether the pages of bytes [first, last) are read within some seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if cached_pages(path)[first // PAGE : -(-last // PAGE)].all():
            return True
        time.sleep(0.01)
    return False


HEADER = 128
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no system call tells")


@needs_linux
def test_rows_come_into_memory_and_others_do_not(tmp_path: Path) -> None:
    path = cold(saved(tmp_path, random_array((100, ROW), np.uint8)))
    dataset = pinfeed.ArrayDataset({"x": path, "y": np.arange(100)})
    dataset.prefetch_rows([70, 3, 3])
    for row in (3, 70):
        assert come_into_memory(path, HEADER + row * ROW, HEADER + (row + 1) * ROW)
    assert cached_pages(path).sum() < 12 * 16


@needs_linux
def test_parts_sequences_and_chosen_rows_come_into_memory(tmp_path: Path) -> None:
    array = random_array((100, ROW), np.uint8)
    paths = [saved(tmp_path, part) for part in np.split(array, 4)]
    dataset = pinfeed.ArrayDataset(pinfeed.ConcatArray(paths))
    cold(paths[2])
    dataset.prefetch_rows(np.array([53]))
    assert come_into_memory(paths[2], HEADER + 3 * ROW, HEADER + 4 * ROW)

    pinfeed.RaggedArray(array.ravel(), np.arange(101) * ROW).save(tmp_path / "ragged")
    ragged = pinfeed.ArrayDataset(pinfeed.RaggedArray.open(tmp_path / "ragged"))
    path = cold(tmp_path / "ragged" / "values.npy")
    ragged.prefetch_rows([40])
    assert come_into_memory(path, HEADER + 40 * ROW, HEADER + 41 * ROW)


def test_in_memory_nothing_happens() -> None:
    dataset = pinfeed.ArrayDataset((np.arange(10), torch.arange(10)))
    dataset.prefetch_rows([1, -1])
    dataset.prefetch_rows([])
    dataset.prefetch_rows(np.array([], np.int64))


@pytest.mark.parametrize(
    ("indices", "error"), [([10], IndexError), ([-11], IndexError), ([0.5], TypeError)]
)
def test_indices_are_checked(indices: Any, error: type[Exception], tmp_path: Path) -> None:
    dataset = pinfeed.ArrayDataset(saved(tmp_path, np.arange(10)))
    with pytest.raises(error, match="ArrayDataset: ind"):
        dataset.prefetch_rows(indices)


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, np.arange(10_000))
    dataset = pinfeed.ArrayDataset(path)
    with open(path, "r+b") as file:
        file.truncate(1000)
    with pytest.raises(OSError, match=r"npy: the file was cut short"):
        dataset.prefetch_rows([9_999])


@needs_linux
def test_rows_that_were_asked_for_are_not_hot(tmp_path: Path) -> None:
    """Or their file would be mapped, and the next ones waited for page by page."""
    array = random_array((2000, 1000), np.uint8)
    path = cold(saved(tmp_path, array))
    dataset, collate = pinfeed.ArrayDataset(path), pinfeed.Collate()
    for start in range(0, 2000, 100):
        indices = np.arange(start, start + 100)
        dataset.prefetch_rows(indices)
        assert come_into_memory(path, HEADER + start * 1000, HEADER + (start + 100) * 1000)
        drop(path)  # for what the system read beyond
        dataset.prefetch_rows(indices)
        batch = collate(dataset.__getitems__(indices))
        assert_same_bits(batch.numpy(), array[indices])
        drop(path)
    assert Path("/proc/self/maps").read_text().count(path.name) == 1  # NumPy's


class Recorded(Dataset[int]):
    """A dataset that says what it was asked."""

    def __init__(self, count: int = 10) -> None:
        self.count = count
        self.calls: list[tuple[str, Any]] = []
        self.fail: Callable[[Any], None] = lambda indices: None

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: Any) -> list[int]:
        self.calls.append(("read", list(indices)))
        return list(indices)

    def __getitem__(self, index: int) -> int:
        self.calls.append(("read", index))
        return index

    def prefetch_rows(self, indices: Any) -> None:
        self.calls.append(("ask", list(indices)))
        self.fail(indices)


def values(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def test_each_batch_is_asked_for_while_the_one_before_is_made() -> None:
    dataset = Recorded(7)
    batches = on_cpu(DataLoader(dataset, 3))
    for _ in range(2):
        dataset.calls.clear()
        assert values(batches) == [[0, 1, 2], [3, 4, 5], [6]]
        assert dataset.calls == [
            ("ask", [0, 1, 2]),
            ("ask", [3, 4, 5]),
            ("read", [0, 1, 2]),
            ("ask", [6]),
            ("read", [3, 4, 5]),
            ("read", [6]),
        ]


def test_a_subset_asks_for_its_rows() -> None:
    dataset = Recorded(10)
    subset = Subset(Subset(dataset, [9, 7, 5, 3, 1]), [4, 0, 2])
    assert values(on_cpu(DataLoader(subset, 2))) == [[1, 9], [5]]
    assert [call for call in dataset.calls if call[0] == "ask"] == [("ask", [1, 9]), ("ask", [5])]


class OwnLoader(DataLoader[int]):
    def __iter__(self) -> Any:
        yield from super().__iter__()


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11
@pytest.mark.parametrize(
    "loader",
    [
        lambda dataset: on_cpu(DataLoader(dataset, 3), prefetch_rows=False),
        lambda dataset: on_cpu(DataLoader(dataset, batch_size=None)),
        lambda dataset: on_cpu(OwnLoader(dataset, 3)),
        lambda dataset: on_cpu(StatefulDataLoader(dataset, 3)),
        lambda dataset: DataLoader(dataset, 3),
    ],
    ids=["off", "no batches", "a loop of its own", "with a state", "without DeviceLoader"],
)
def test_nobody_is_asked_otherwise(loader: Any) -> None:
    dataset = Recorded(7)
    assert len(list(loader(dataset))) in (3, 7)
    assert {call[0] for call in dataset.calls} == {"read"}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_the_same_with_and_without(workers: int, shuffle: bool, tmp_path: Path) -> None:
    path = saved(tmp_path, random_array((100, 50), np.float32))

    def batches(prefetch_rows: bool) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(3)
        loader = pinfeed.from_numpy(
            (path, np.arange(100)),
            8,
            shuffle=shuffle,
            device="cpu",
            prefetch_rows=prefetch_rows,
            num_workers=workers,
            generator=generator,
        )
        return [leaf.clone() for _ in range(2) for batch in loader for leaf in batch]

    for one, other in zip(batches(True), batches(False), strict=True):
        assert_same_bits(one.numpy(), other.numpy())


def failing_at(batch: int, error: BaseException) -> Iterator[list[int]]:
    for number in range(4):
        if number == batch:
            raise error
        yield [number]


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_an_error_of_the_sampler_comes_in_its_turn(batch: int) -> None:
    batches = iter(on_cpu(DataLoader(Recorded(), batch_sampler=failing_at(batch, KeyError("no")))))
    for number in range(batch):
        assert next(batches).tolist() == [number]
    with pytest.raises(KeyError, match="no") as caught:
        next(batches)
    assert f"for batch {batch} of" in caught.value.__notes__[0]
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_an_error_of_asking_comes_in_its_turn_and_the_loop_goes_on(batch: int) -> None:
    dataset = Recorded(4)

    def fail(indices: Any) -> None:
        if indices == [batch]:
            raise OSError("no such disk")

    dataset.fail = fail
    batches = iter(on_cpu(DataLoader(dataset, 1)))
    for number in range(4):
        if number == batch:
            with pytest.raises(OSError, match="no such disk"):
                next(batches)
        else:
            assert next(batches).tolist() == [number]
    with pytest.raises(StopIteration):
        next(batches)


def test_a_bad_index_fails_for_its_batch(tmp_path: Path) -> None:
    dataset = pinfeed.ArrayDataset(saved(tmp_path, np.arange(10)))
    loader = DataLoader(dataset, batch_sampler=[[1], [10], [2]], collate_fn=pinfeed.Collate())
    batches = iter(on_cpu(loader))
    assert next(batches).tolist() == [1]
    with pytest.raises(IndexError, match="index 10 at position 0 is out of range"):
        next(batches)
    assert next(batches).tolist() == [2]


def test_a_sampler_without_end() -> None:
    def forever() -> Iterator[list[int]]:
        while True:
            yield [1, 2]

    for number, batch in enumerate(on_cpu(DataLoader(Recorded(), batch_sampler=forever()))):
        assert batch.tolist() == [1, 2]
        if number == 20:
            break


def test_prefetch_rows_is_a_bool() -> None:
    with pytest.raises(TypeError, match="prefetch_rows must be a bool, got 2"):
        on_cpu([1], prefetch_rows=2)
