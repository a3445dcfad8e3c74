"""Rows of the batch after the next: asked for in time, once, and without consequence."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import sys
import threading
import time
import weakref
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


def test_what_reads_files_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path, np.arange(10))
    ragged = pinfeed.RaggedArray(np.load(path, mmap_mode="r"), np.arange(11))
    in_memory = pinfeed.RaggedArray(np.arange(10), np.arange(11))
    for array in (path, np.load(path, mmap_mode="r"), pinfeed.ConcatArray([path]), ragged):
        assert pinfeed.ArrayDataset((np.arange(10), array)).reads_files
    for array in (np.arange(10), torch.arange(10), pinfeed.ConcatArray([np.arange(10)]), in_memory):
        assert not pinfeed.ArrayDataset((np.arange(10), array)).reads_files


def test_in_memory_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = pinfeed.ArrayDataset((np.arange(10), torch.arange(10)))
    asked: list[Any] = []
    with monkeypatch.context() as context:
        context.setattr(
            pinfeed.ArrayDataset, "prefetch_rows", lambda self, rows: asked.append(rows)
        )
        loader = DataLoader(dataset, 4, collate_fn=pinfeed.Collate())
        assert len(list(on_cpu(loader))) == 3
    assert asked == []
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
        read = list(indices)
        self.calls.append(("read", read))
        return [*read]

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
            ("read", [0, 1, 2]),  # in the consumer's thread
            ("ask", [3, 4, 5]),
            ("ask", [6]),
            ("read", [3, 4, 5]),
            ("read", [6]),
        ]


def test_a_subset_asks_for_its_rows() -> None:
    dataset = Recorded(10)
    subset = Subset(Subset(dataset, [9, 7, 5, 3, 1]), [4, 0, 2])
    assert values(on_cpu(DataLoader(subset, 2))) == [[1, 9], [5]]
    assert [call for call in dataset.calls if call[0] == "ask"] == [("ask", [5])]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, tuple])
def test_a_subset_of_any_indices(kind: Any) -> None:
    dataset = Recorded(10)
    subset = Subset(dataset, kind([9, 7, 5, 3]))
    assert len(list(on_cpu(DataLoader(subset, 2)))) == 2
    assert [call for call in dataset.calls if call[0] == "ask"] == [("ask", [5, 3])]


class OwnLoader(DataLoader[int]):
    def __iter__(self) -> Any:
        yield from super().__iter__()


class SavingLoader(DataLoader[int]):
    def state_dict(self) -> dict[str, int]:
        return {}


class Renumbered(Recorded):
    """A subclass whose indices are others."""

    def __init__(self, dataset: Recorded) -> None:
        super().__init__(7)
        self.calls = dataset.calls

    def __getitems__(self, indices: Any) -> list[int]:
        return super().__getitems__([index + 100 for index in indices])


class Delegating(Dataset[int]):
    def __init__(self, dataset: Recorded) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> int:
        return self.dataset[index]

    def __getattr__(self, name: str) -> Any:
        if name in ("dataset", "__getitems__"):
            raise AttributeError(name)
        return getattr(self.dataset, name)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11
@pytest.mark.parametrize(
    "loader",
    [
        lambda dataset: on_cpu(DataLoader(dataset, 3), prefetch_rows=False),
        lambda dataset: on_cpu(DataLoader(dataset, batch_size=None)),
        lambda dataset: on_cpu(OwnLoader(dataset, 3)),
        lambda dataset: on_cpu(SavingLoader(dataset, 3)),
        lambda dataset: on_cpu(DataLoader(Renumbered(dataset), 3)),
        lambda dataset: on_cpu(DataLoader(Subset(Renumbered(dataset), range(7)), 3)),
        lambda dataset: on_cpu(DataLoader(Delegating(dataset), 3)),
        lambda dataset: on_cpu(StatefulDataLoader(dataset, 3)),
        lambda dataset: DataLoader(dataset, 3),
    ],
    ids=[
        "off",
        "no batches",
        "a loop of its own",
        "a state of its own",
        "indices of its own",
        "a subset of that",
        "a method of another",
        "with a state",
        "without DeviceLoader",
    ],
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


def test_an_error_of_asking_is_passed_over() -> None:
    dataset = Recorded(4)

    def fail(indices: Any) -> None:
        raise OSError("no such disk")

    dataset.fail = fail
    assert values(on_cpu(DataLoader(dataset, 1))) == [[0], [1], [2], [3]]
    assert [call for call in dataset.calls if call[0] == "ask"] == [("ask", [n]) for n in (1, 2, 3)]


class WithSetting(Dataset[int]):
    prefetch_rows = 16

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


class WithBrokenProperty(WithSetting):
    @property
    def prefetch_rows(self) -> Any:
        raise RuntimeError("not now")


@pytest.mark.parametrize("kind", [WithSetting, WithBrokenProperty])
def test_something_else_of_that_name(kind: Any) -> None:
    assert values(on_cpu(DataLoader(kind(), 2))) == [[0, 1], [2]]


class Reusing:
    """A batch sampler that writes all batches into one object."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __iter__(self) -> Iterator[Any]:
        for number in range(5):
            for place in range(2):
                self.batch[place] = 2 * number + place
            yield self.batch


class OwnList(list[int]):
    pass


@pytest.mark.parametrize(
    "batch", [[0, 0], np.zeros(2, np.int64), torch.zeros(2, dtype=torch.int64), OwnList([0, 0])]
)
def test_a_sampler_may_reuse_its_batch(batch: Any) -> None:
    dataset = pinfeed.ArrayDataset(np.arange(10))
    loader = DataLoader(dataset, batch_sampler=Reusing(batch), collate_fn=pinfeed.Collate())  # type: ignore[arg-type]
    assert values(on_cpu(loader)) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_batches_that_can_be_gone_through_once() -> None:
    batches = [iter([1, 2]), iter([3]), iter([4])]
    assert values(on_cpu(DataLoader(Recorded(), batch_sampler=batches))) == [[1, 2], [3], [4]]  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["end", "error", "break"])
def test_the_dataset_goes_with_the_loop(end: str) -> None:
    def sampler() -> Iterator[list[int]]:
        for number in range(4):
            yield [number]
        if end == "error":
            raise KeyError("no")

    dataset = Recorded(6)
    gone = weakref.ref(dataset)
    loader = on_cpu(DataLoader(dataset, batch_sampler=sampler()))  # type: ignore[arg-type]
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(KeyError):
            for number, _ in enumerate(loader):
                if end == "break" and number == 1:
                    break
        del loader, dataset
        for _ in range(100):
            if gone() is None:
                break
            time.sleep(0.05)  # the thread ends
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_the_sampler_comes_in_its_turn(error: BaseException) -> None:
    batches = iter(on_cpu(DataLoader(Recorded(), batch_sampler=failing_at(2, error))))
    assert [next(batches).tolist(), next(batches).tolist()] == [[0], [1]]
    with pytest.raises(type(error)):
        next(batches)


def test_nothing_is_drawn_early_in_the_main_thread() -> None:
    drawn = []

    def sampler() -> Iterator[list[int]]:
        for number in range(3):
            drawn.append((number, threading.current_thread() is threading.main_thread()))
            yield [number]

    assert values(on_cpu(DataLoader(Recorded(), batch_sampler=sampler()))) == [[0], [1], [2]]
    assert drawn == [(0, True), (1, False), (2, False)]


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
