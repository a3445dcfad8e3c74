"""Random rows of files: from a cold disk, from the page cache, and of 10,000 files as one array."""

import ctypes
import itertools
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench.harness import Role, Way, Workload

BATCH = 256
IN_A_ROW = 8  # batches of rows that are in memory: as in a loop, where their code is too
PARTS = 10_000
READERS = 16
_LIBC = ctypes.CDLL(None, use_errno=True)


def resident(path: Path) -> float:
    """Return which share of a file's pages is in memory."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    flags = (ctypes.c_ubyte * pages)()
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        try:
            if _LIBC.mincore(ctypes.byref(start), ctypes.c_size_t(size), flags) != 0:
                raise OSError(ctypes.get_errno(), "mincore failed")
        finally:
            del start
    return float((np.frombuffer(flags, np.uint8) & 1).mean())


class FileRows:
    """A file of random rows, removed when the object dies; the batches that are asked for next.

    Args:
        row: Shape of a row of uint8.
        size: Bytes of the file, about.
        parts: How many .npy files the same rows are written to as well.
        batches: How many are asked for at a time.
    """

    def __init__(
        self, row: tuple[int, ...], size: int, parts: int = 0, *, batches: int = 1
    ) -> None:
        self._batches = batches
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        count = size // int(np.prod(row))
        if parts:
            count = max(count - count % parts, parts)
        self._random = np.random.default_rng(1)
        self.path = folder / "rows.npy"
        self.rows = np.lib.format.open_memmap(self.path, "w+", np.uint8, (count, *row))
        step = max(1, (64 << 20) // int(np.prod(row)))
        for start in range(0, count, step):
            block = self.rows[start : start + step]
            block[:] = self._random.integers(0, 256, block.shape, np.uint8)
        self.rows.flush()
        self.rows = np.load(self.path, mmap_mode="r")
        self.offset = self.rows.offset
        self.row_bytes = int(np.prod(row))
        self.paths = [folder / f"part-{i}.npy" for i in range(parts)]
        for path, part in zip(self.paths, np.split(self.rows, parts) if parts else [], strict=True):
            np.save(path, part)
        os.sync()
        self.out = np.zeros((BATCH, *row), np.uint8)
        self.choose()

    def choose(self) -> None:
        """Draw the rows of the next batches."""
        self.indices = self._random.integers(0, len(self.rows), (self._batches, BATCH))

    def choose_cold(self) -> None:
        """Draw rows, and see to it that no file is in memory."""
        self.choose()
        # Pages that are mapped are not dropped.
        self.rows._mmap.madvise(mmap.MADV_DONTNEED)
        for path in (self.path, *self.paths):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        for path in (self.path, *self.paths[:: max(1, len(self.paths) // 10)]):
            if (share := resident(path)) > 0.01:
                raise RuntimeError(f"{share:.0%} of {path} stayed in memory")

    def heat(self) -> None:
        """Read all files once."""
        for path in (self.path, *self.paths):
            with open(path, "rb") as file:
                while file.read(1 << 24):
                    pass

    def error(self, result: Any) -> float:
        """Return 0 if the result is the last batch."""
        same = np.array_equal(np.asarray(result), self.rows[self.indices[-1]])
        return 0.0 if same else float("inf")


def _collated(
    rows: FileRows, source: Callable[[], Any], epochs: int = 0
) -> Callable[[], Callable[[], Any]]:
    """Return a way that has gone through all rows some times before."""

    def build() -> Callable[[], Any]:
        dataset, collate = pinfeed.ArrayDataset(source()), pinfeed.Collate()
        for start in [*range(0, len(dataset), BATCH)] * epochs:
            collate(dataset.__getitems__(range(start, min(start + BATCH, len(dataset)))))

        def run() -> Any:
            for indices in rows.indices:
                batch = collate(dataset.__getitems__(indices))
            return batch

        return run

    return build


def _taken(rows: FileRows, array: Any) -> Callable[[], Callable[[], Any]]:
    def run() -> Any:
        for batch in rows.indices:
            np.take(array, batch, axis=0, out=rows.out, mode="clip")
        return rows.out

    return lambda: run


def _advised(rows: FileRows) -> Callable[[], Any]:
    mapping = rows.rows._mmap

    def run() -> Any:
        [indices] = rows.indices
        for index in indices.tolist():
            start = rows.offset + index * rows.row_bytes
            page = start - start % mmap.PAGESIZE
            mapping.madvise(mmap.MADV_WILLNEED, page, rows.row_bytes + start - page)
        return np.take(rows.rows, indices, axis=0, out=rows.out, mode="clip")

    return run


def _read(rows: FileRows, readers: int) -> Callable[[], Callable[[], Any]]:
    def build() -> Callable[[], Any]:
        descriptor = os.open(rows.path, os.O_RDONLY)
        pool = ThreadPoolExecutor(readers)

        def read(place: int, index: int) -> int:
            return os.preadv(descriptor, [rows.out[place]], rows.offset + index * rows.row_bytes)

        def run() -> Any:
            for batch in rows.indices:
                list(pool.map(read, range(BATCH), batch.tolist()))
            return rows.out

        return run

    return build


def _sizes(name: str) -> tuple[tuple[int, ...], str]:
    return {"150KB": ((224, 224, 3), "150 KB"), "3KB": ((32, 32, 3), "3 KB")}[name]


def cold(name: str) -> Workload:
    """Rows that are nowhere but on the disk."""
    shape, text = _sizes(name.removeprefix("cold-rows-"))
    rows = FileRows(shape, 1_500_000_000)
    ways = [
        Way(f"`pread` by {READERS} threads", _read(rows, READERS), Role.LIMIT),
        Way(
            "**pinfeed** `ArrayDataset`, `Collate()`",
            _collated(rows, lambda: rows.path),
            Role.PINFEED,
        ),
        Way("`pread` by 1 thread", _read(rows, 1)),
        Way("`madvise(WILLNEED)` of all rows, then `np.take`", lambda: _advised(rows)),
        Way("NumPy `take` of a memmap", _taken(rows, rows.rows)),
    ]
    title = f"{BATCH} random rows of {text} of a 1.5 GB file that is not in memory"
    return Workload(name, title, ways, rows.error, prepare=rows.choose_cold, repeat=False)


def hot(name: str) -> Workload:
    """Rows of a file that is in the page cache, and the same rows in memory."""
    shape, text = _sizes(name.removeprefix("hot-rows-"))
    rows = FileRows(shape, 1_000_000_000, batches=IN_A_ROW)
    memory = np.array(rows.rows)
    # NumPy asks for pages of 2 MB for its arrays, torch doesn't, and files have none.
    small_pages = torch.empty(memory.shape, dtype=torch.uint8).numpy()
    small_pages[:] = memory
    rows.heat()
    ways = [
        Way("**pinfeed** of an array in memory", _collated(rows, lambda: memory, 1), Role.LIMIT),
        Way("**pinfeed** of the file", _collated(rows, lambda: rows.path, 1), Role.PINFEED),
        Way("**pinfeed** of one in a tensor", _collated(rows, lambda: small_pages, 1)),
        Way("NumPy `take` of the array in memory", _taken(rows, memory)),
        Way("NumPy `take` of a memmap", _taken(rows, rows.rows)),
        Way("`pread` by 1 thread", _read(rows, 1)),
    ]
    title = f"{IN_A_ROW} batches of {BATCH} random rows of {text} of a 1 GB file in the page cache"
    return Workload(name, title, ways, rows.error, prepare=rows.choose, repeat=False)


def parts(name: str) -> Workload:
    """One array in 10,000 files against one file."""
    temperature, _, size = name.removeprefix("parts-").partition("-")
    shape, text = _sizes(size)
    # Two copies: half of the space for each.
    is_hot = temperature == "hot"
    batches = IN_A_ROW if is_hot else 1
    space = 1_500_000_000 if size == "150KB" else 500_000_000
    rows = FileRows(shape, space, PARTS, batches=batches)
    epochs = 2 if is_hot else 0
    if epochs:
        rows.heat()
    ways = [
        Way("**pinfeed** of one file", _collated(rows, lambda: rows.path, epochs), Role.LIMIT),
        Way(
            f"**pinfeed** `ConcatArray` of {PARTS:,} files",
            _collated(rows, lambda: pinfeed.ConcatArray(rows.paths), epochs),
            Role.PINFEED,
        ),
    ]
    what = f"{batches} batches of {BATCH}" if is_hot else f"{BATCH}"
    title = f"{what} random rows of {text} in {PARTS:,} files, {temperature}"
    prepare = rows.choose if is_hot else rows.choose_cold
    return Workload(name, title, ways, rows.error, prepare=prepare, repeat=False)


def _looped(
    rows: FileRows, loader: Callable[[Any], Any], *, is_asked: bool = False
) -> Callable[[], Callable[[], Any]]:
    """Return a way that goes through all batches of a loader over the file.

    Args:
        rows: The file.
        loader: Wraps a DataLoader.
        is_asked: Whether the rows of each batch are asked for one batch ahead, as `from_numpy` does.
    """

    def ahead(dataset: pinfeed.ArrayDataset, batches: list[list[int]]) -> Iterator[list[int]]:
        for batch, following in itertools.zip_longest(batches, batches[1:], fillvalue=[]):
            dataset.prefetch_rows(following)
            yield batch

    def run() -> Any:
        dataset = pinfeed.ArrayDataset(rows.path)
        collate = pinfeed.Collate(pinfeed.Image(mean=0.5, std=0.25))
        sampler: Any = rows.indices.tolist()
        if is_asked:
            sampler = ahead(dataset, sampler)
        for batch in loader(DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)):
            last = batch
        return last

    return lambda: run


def prefetched(name: str) -> Workload:
    """Epochs over a cold file, with and without asking for the next batch's rows."""
    shape, text = _sizes(name.removeprefix("prefetch-"))
    rows = FileRows(shape, 1_500_000_000, batches=12)

    def error(result: Any) -> float:
        images = rows.rows[rows.indices[-1]].transpose(0, 3, 1, 2)
        return float(np.abs((images / 255 - 0.5) / 0.25 - result.numpy()).max())

    def in_a_thread(loader: Any) -> Any:
        return pinfeed.DeviceLoader(loader, "cpu")

    asked = _looped(rows, in_a_thread, is_asked=True)
    ways = [
        Way(f"`pread` by {READERS} threads, nothing else", _read(rows, READERS), Role.LIMIT),
        Way("**pinfeed** `DeviceLoader`, `prefetch_rows`", asked, Role.PINFEED, 1e-5),
        Way("**pinfeed** `DeviceLoader`, not asked", _looped(rows, in_a_thread), tolerance=1e-5),
        Way("**pinfeed** without `DeviceLoader`", _looped(rows, iter), tolerance=1e-5),
    ]
    title = f"12 batches of {BATCH} random rows of {text} of a cold file, normalized, in a loop"
    return Workload(name, title, ways, error, prepare=rows.choose_cold, repeat=False)


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return each workload's threads and what makes it."""
    made: dict[str, tuple[int, Callable[[str], Workload]]] = {}
    for size in ("150KB", "3KB"):
        made[f"cold-rows-{size}"] = (1, cold)
        made[f"hot-rows-{size}"] = (1, hot)
        made[f"parts-cold-{size}"] = (1, parts)
        made[f"parts-hot-{size}"] = (1, parts)
        made[f"prefetch-{size}"] = (1, prefetched)
    return made
