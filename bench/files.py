"""Random rows of files, cold, cached, and of many files as one array; and a stream of shards."""

import ctypes
import itertools
import json
import mmap
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench.data import Draw, difference, random_bytes, zero_if
from bench.harness import compare, other, ours, reference, workload
from bench.targets import DISTURBED, ELSEWHERE, at_least, at_most

BATCH, READERS, PARTS = 256, 16, 1000
CONCAT = f"`ConcatArray` of {PARTS:,} files"
TAKE = "NumPy `take` of a memmap"
MANY_FILES = "each row's file is searched, and 8 batches use 1,800 files"
ONE_BUFFER = "`take` writes to one buffer; a batch is of the pool, and 14 µs are of the loop around"


def unmap(folder):
    """Unmaps the pages of a folder's files in this process; the system keeps them cached."""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *_, path = line.split(maxsplit=5)
        if path.startswith(folder):
            begin, end = (int(address, 16) for address in addresses.split("-"))
            if libc.madvise(
                ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED
            ):
                raise OSError(ctypes.get_errno(), f"madvise of {path}")


def drop(path):
    """Drops a file's pages from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def held_percent(path):
    """Returns the fraction of a file that is in memory, from a hundred of its pages."""
    descriptor, size, held = os.open(path, os.O_RDONLY), path.stat().st_size, 0
    for offset in range(0, size, -(-size // 100)):
        with suppress(BlockingIOError):
            held += os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    os.close(descriptor)
    return held


class Rows:
    """Batches of random rows of a file, redrawn before each sample.

    Args:
        row: Shape of a row.
        size: Bytes of the file, approximately.
        parts: Number of .npy files to which the same rows are written too.
        batches: Batches per call.
    """

    def __init__(self, row, size, parts=0, batches=1):
        self.folder = tempfile.TemporaryDirectory(prefix="pinfeed-bench-")
        self.path = Path(self.folder.name, "rows.npy")
        self.parts = [self.path.with_name(f"part-{i}.npy") for i in range(parts)]
        count = size // int(np.prod(row)) // max(parts, 1) * max(parts, 1)
        np.save(self.path, random_bytes(count, *row))
        self.rows, self.out = np.load(self.path, mmap_mode="r"), torch.zeros(BATCH, *row).byte()
        for path, part in zip(self.parts, np.split(self.rows, parts) if parts else [], strict=True):
            np.save(path, part)
        os.sync()
        self.draw = Draw(count, BATCH, batches)

    def hot(self):
        """Reads all pages into memory."""
        for path in (self.path, *self.parts):
            with open(path, "rb") as file:
                while file.read(1 << 24):
                    pass

    def cold(self):
        """Draws rows, and drops all pages from memory."""
        self.draw.again()
        unmap(self.folder.name)
        for path in (self.path, *self.parts):
            drop(path)
        for _ in range(100):
            if (held := held_percent(self.path)) <= 1:
                return
            time.sleep(0.05)  # a page that is being read can't be dropped
            drop(self.path)
        raise RuntimeError(f"{held} % of {self.path} stayed in memory")

    def last(self):
        """Returns the last batch."""
        return np.array(self.rows[self.draw.batches[-1]])

    def collated(self, source, passes=0):
        """pinfeed, after this many passes over all rows."""
        dataset, collate = pinfeed.ArrayDataset(source), pinfeed.Collate()
        for start in [*range(0, len(dataset), BATCH)] * passes:
            collate(dataset.__getitems__(range(start, min(start + BATCH, len(dataset)))))

        def run():
            for indices in self.draw.batches:
                batch = collate(dataset.__getitems__(indices))
            return batch

        return run

    def take(self, array):
        """NumPy, in its fastest form."""
        for indices in self.draw.batches:
            np.take(array, indices, axis=0, out=self.out.numpy(), mode="clip")
        return self.out

    def read(self, readers):
        """Threads that each read one row after the other."""
        descriptor, pool = os.open(self.path, os.O_RDONLY), ThreadPoolExecutor(readers)
        out, offset, size = self.out.numpy(), self.rows.offset, self.rows[0].nbytes

        def read(position, index):
            return os.preadv(descriptor, [out[position]], offset + index * size)

        def run():
            for batch in self.draw.batches:
                list(pool.map(read, range(BATCH), batch.tolist()))
            return self.out

        return run


def cold(*row):
    """Rows of one file and of many."""
    rows = Rows(row, 1_000_000_000, PARTS)
    concat = pinfeed.ConcatArray(rows.parts)
    return compare(
        reference(f"`pread` by {READERS} threads", rows.read(READERS)),
        ours("`ArrayDataset`, `Collate()`", rows.collated(rows.path)),
        ours(CONCAT, rows.collated(concat)),
        other("`pread` by 1 thread", rows.read(1)),
        other(TAKE, partial(rows.take, rows.rows)),
        expected=lambda batch: difference(batch, rows.last()),
        outputs=[rows.out],
        prepare=rows.cold,
    )


@workload(
    at_most(1.11),
    at_most(1.1, CONCAT, "`ArrayDataset`", why=(1.94, "each batch opens 230 files")),
    at_least(6, TAKE),
)
def cold_rows():
    """256 random rows of 150 KB of a file of 1 GB that is not in memory."""
    return cold(224, 224, 3)


@workload(at_most(1.1, CONCAT, "`ArrayDataset`", why=(1.24, "not known")), at_least(4, TAKE))
def cold_rows_small():
    """256 random rows of 3 KB of a file of 1 GB that is not in memory."""
    return cold(32, 32, 3)


@workload(
    at_most(1.05, "of the file", "of a tensor in memory"),
    at_most(1.1, CONCAT, "of the file", why=(1.5, MANY_FILES)),
    at_least(1, of="of an array in memory", why=(0.9, ONE_BUFFER)),
)
def hot_rows():
    """8 batches of 256 random rows of 3 KB of a file of 500 MB in the page cache, and in memory."""
    rows = Rows((32, 32, 3), 500_000_000, PARTS, batches=8)
    # NumPy requests pages of 2 MB for its arrays, torch doesn't, and files have none.
    memory, tensor = np.array(rows.rows), torch.empty(rows.rows.shape, dtype=torch.uint8)
    np.copyto(tensor.numpy(), memory)
    rows.hot()
    concat = pinfeed.ConcatArray(rows.parts)
    return compare(
        ours("of the file", rows.collated(rows.path, passes=1)),
        ours(CONCAT, rows.collated(concat, passes=2)),
        ours("of an array in memory", rows.collated(memory)),
        ours("of a tensor in memory", rows.collated(tensor.numpy())),
        other("NumPy `take` of the array in memory", partial(rows.take, memory)),
        other(TAKE, partial(rows.take, rows.rows)),
        other("`pread` by 1 thread", rows.read(1)),
        expected=lambda batch: difference(batch, rows.last()),
        outputs=[rows.out],
        prepare=rows.draw.again,
    )


@workload(
    at_most(1.11, why=(1.87, ELSEWHERE)),
    at_least(1, "**pinfeed** without `DeviceLoader`", why=(0.88, "not known")),
)
def cold_epoch():
    """12 batches of 256 random rows of 150 KB of a cold file, normalized, in a loop."""
    rows = Rows((224, 224, 3), 1_500_000_000, batches=12)
    collate = pinfeed.Collate(pinfeed.Image(mean=0.5, std=0.25))

    def looped(wrap):
        def run():
            dataset, sampler = pinfeed.ArrayDataset(rows.path), rows.draw.batches.tolist()
            loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
            for batch in wrap(loader):
                last = batch
            return last

        return run

    def error(batch):
        images = rows.last().transpose(0, 3, 1, 2)
        return float(np.abs((images / 255 - 0.5) / 0.25 - batch.numpy()).max())

    in_a_thread = partial(pinfeed.DeviceLoader, device="cpu")
    return compare(
        reference(f"`pread` by {READERS} threads, nothing else", rows.read(READERS)),
        ours("`DeviceLoader`", looped(in_a_thread), tolerance=1e-5),
        other("**pinfeed** without `DeviceLoader`", looped(iter)),
        expected=error,
        tolerance=1e-5,
        prepare=rows.cold,
    )


BUFFER = 1000
BUFFERED = f"`StreamDataset`, buffer of {BUFFER:,}"


def read_lines(path):
    """Yields the samples of a shard."""
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


@workload(
    at_most(1.11),
    at_most(1.11, BUFFERED, "the source", why=(1.49, "buffering costs 0.5 µs per sample")),
    at_most(1.05, BUFFERED, "a generator with an equal buffer", why=(1.23, DISTURBED)),
)
def stream():
    """48,000 lines of JSON from 16 shards, one by one."""
    folder = tempfile.TemporaryDirectory(prefix="pinfeed-bench-")
    shards = [Path(folder.name, str(number)) for number in range(16)]
    texts = [{"number": number, "text": "a few words " * 5} for number in range(48_000)]
    for i, path in enumerate(shards):
        path.write_text("".join(json.dumps(text) + "\n" for text in texts[i::16]))

    def source():
        return itertools.chain.from_iterable(map(read_lines, shards))

    def by_hand():
        held = list(itertools.islice(samples := source(), BUFFER))
        rng = np.random.default_rng(0)
        blocks = (rng.integers(BUFFER, size=1024).tolist() for _ in itertools.repeat(None))
        for sample, slot in zip(samples, itertools.chain.from_iterable(blocks), strict=False):
            yield held[slot]
            held[slot] = sample
        yield from held

    def by_pinfeed(buffer):
        return partial(iter, pinfeed.StreamDataset(shards, buffer, open_shard=read_lines))

    def error(samples):
        seen = sorted(sample["number"] for sample in samples)
        folder.name  # noqa: B018 - keeps the files until the job is gone
        return zero_if(seen == list(range(len(texts))))

    return compare(
        reference("the source, shard after shard", source),
        ours("`StreamDataset`", by_pinfeed(0)),
        ours(BUFFERED, by_pinfeed(BUFFER)),
        other("a generator with an equal buffer, positions drawn in blocks", by_hand),
        expected=error,
    )
