"""Batches of token lists from a table in 16 chunks, as Parquet files are read, and in one."""

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import pinfeed
from bench.harness import Role, Way, Workload

_ROWS, _CHUNKS, _BATCH = 160_000, 16, 1024


def chunked(name: str) -> Workload:
    """1,024 random lists, padded."""
    import pyarrow as pa  # an optional library

    generator = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(generator.integers(1, 64, _ROWS))])
    values = generator.integers(0, 50_000, offsets[-1])
    lists = pa.LargeListArray.from_arrays(offsets, values)
    size = _ROWS // _CHUNKS
    chunks = [pa.concat_arrays([lists.slice(i * size, size)]) for i in range(_CHUNKS)]
    rows = generator.integers(0, _ROWS, _BATCH).tolist()
    tensors = [torch.from_numpy(values[offsets[row] : offsets[row + 1]]) for row in rows]
    expected = pad_sequence(tensors, batch_first=True)

    def ours(column):
        def build():
            dataset = pinfeed.ArrayDataset.from_arrow(pa.table({"x": column}))
            collate = pinfeed.Collate({"x": pinfeed.Pad()})
            return lambda: collate(dataset.__getitems__(rows))["x"]

        return build

    def error(batch):
        return 0.0 if torch.equal(batch, expected) else float("inf")

    ways = [
        Way("physical limit: copy the batch", lambda: expected.clone, Role.LIMIT),
        Way("**pinfeed** of 16 chunks", ours(pa.chunked_array(chunks)), Role.PINFEED),
        Way("**pinfeed** of one chunk", ours(lists), Role.PINFEED),
        Way(
            "torch `pad_sequence` of a list of tensors",
            lambda: lambda: pad_sequence(tensors, batch_first=True),
        ),
    ]
    title = (
        f"{_BATCH:,} lists of 1 to 63 int64 of {_ROWS:,} in a table of {_CHUNKS} chunks → padded, "
        f"{torch.get_num_threads()} thread(s)"
    )
    return Workload(name, title, ways, error)


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    return {"chunked-tables": (1, chunked)}
