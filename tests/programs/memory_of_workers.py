"""Number of copies of a dataset in memory while three workers read it.

argv: the start method, the type of the data, and whether this program also holds the data.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed

WORKERS = 3
COUNT = 64
ROW = (2**20,)  # bytes
RECORDS = 400_000


def records(count):
    return [{"file": f"{i:08}.jpg", "label": i, "width": 640} for i in range(count)]


def rows(count):
    return np.ones((count, *ROW), np.uint8)


def table(count):
    import pyarrow as pa

    path = f"{folder.name}/{count}.arrow"
    column = pa.FixedSizeListArray.from_arrays(rows(count).reshape(-1), ROW[0])
    with pa.ipc.new_file(path, pa.schema({"x": column.type})) as file:
        for batch in pa.table({"x": column}).to_batches(max_chunksize=7):
            file.write(batch)
    with pa.memory_map(path) as source:
        return pa.ipc.open_file(source).read_all()


#: Types of data, and their dataset.
KINDS = {
    "list": (records, lambda data: data),
    "SharedList": (records, pinfeed.SharedList),
    "array": (rows, pinfeed.ArrayDataset),
    "dict": (rows, lambda data: pinfeed.ArrayDataset({"x": data, "y": np.arange(len(data))})),
    "tensor": (rows, lambda data: pinfeed.ArrayDataset({"x": torch.from_numpy(data)})),
    "select": (rows, lambda data: pinfeed.ArrayDataset(data).select(range(len(data))[::-1])),
    "concat": (rows, lambda data: pinfeed.ArrayDataset(pinfeed.ConcatArray([row.copy() for row in data[:, None]]))),
    "ragged": (rows, lambda data: pinfeed.ArrayDataset(pinfeed.RaggedArray(data.reshape(-1), np.arange(len(data) + 1) * ROW[0]))),
    "strings": (rows, lambda data: pinfeed.ArrayDataset(pinfeed.RaggedArray.from_strings(row.tobytes() for row in data))),
    "table": (table, pinfeed.ArrayDataset.from_arrow),
}  # fmt: skip


def read(samples):
    """Returns the number of samples after reading all of their values."""
    for sample in samples:
        for value in sample.values() if isinstance(sample, dict) else [sample]:
            if isinstance(value, np.ndarray | torch.Tensor):
                value.max()
    return len(samples)


def held_bytes():
    """Returns the memory of this process and its children, with shared memory divided among them.

    Mapped files such as libraries are excluded, because other processes that map them change the number.
    """
    processes = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    texts = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    kinds = ("Pss_Anon:", "Pss_Shmem:")
    lines = [line for text in texts for line in text.splitlines() if line.startswith(kinds)]
    return sum(int(line.split()[1]) for line in lines) * 1024


def held_in_an_epoch(method, dataset):
    options = {"shuffle": True, "num_workers": WORKERS, "persistent_workers": True}
    size = 4 if len(dataset) <= COUNT else 100
    loader = DataLoader(dataset, size, collate_fn=read, multiprocessing_context=method, **options)
    assert sum(loader) == len(dataset)
    read(dataset)  # shared memory counts after a process has read it
    return held_bytes()


if __name__ == "__main__":
    method, kind, is_held = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = type("", (), {"name": name})
        make, wrap = KINDS[kind]
        few, many = (COUNT // 4, COUNT) if make is not records else (RECORDS // 4, RECORDS)
        held = []
        for count in (few, many):
            before = held_bytes()
            data = make(count)
            once = held_bytes() - before
            dataset = wrap(data)
            if not is_held:
                data = None
            held.append(held_in_an_epoch(method, dataset))
            data = dataset = None
        print(
            (held[1] - held[0]) / ((many - few) * (ROW[0] if make is not records else once / many))
        )
