"""A shuffled epoch of documents in a file: packed, padded, and as TRL and torchtune pack."""

import functools
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench.epoch import exhaust
from bench.harness import Role, Way, Workload

_SEQ_LENGTH = 8192
_ROWS = 4


class PackedEpoch:
    """Documents in a RaggedArray's directory, which goes when this does.

    Args:
        count: Documents, of about 270 tokens on average.
    """

    def __init__(self, count: int) -> None:
        random = np.random.default_rng(0)
        lengths = random.lognormal(5, 1.1, count).astype(np.int64).clip(1, _SEQ_LENGTH)
        offsets = np.append(0, np.cumsum(lengths))
        tokens = random.integers(1, 50_000, offsets[-1], np.uint16)
        self.sum, self.count = int(tokens.sum(dtype=np.int64)), len(tokens)
        self.folder = tempfile.TemporaryDirectory()
        self.path = f"{self.folder.name}/tokens"
        pinfeed.RaggedArray(tokens, offsets).save(self.path)

    def error(self, batches: Iterator[torch.Tensor]) -> float:
        """Check that every token came once, and nothing else but zeros."""
        count = total = 0
        for batch in batches:
            count += int(batch.count_nonzero())
            total += int(batch.sum())
        return float(abs(count - self.count) + abs(total - self.sum))

    def loader(self, sampler: Callable, field: pinfeed.Field) -> Callable[[], Iterator]:
        """Every epoch plans anew: a sampler is made for it."""
        ragged = pinfeed.RaggedArray.open(self.path)
        dataset, collate = pinfeed.ArrayDataset(ragged), pinfeed.Collate(field)
        return lambda: iter(DataLoader(dataset, batch_sampler=sampler(ragged), collate_fn=collate))

    def packed(self) -> Callable[[], Iterator]:
        """Rows of 8192."""
        sampler = functools.partial(pinfeed.PackSampler, seq_length=_SEQ_LENGTH, rows=_ROWS)
        return self.loader(sampler, pinfeed.Pack(_SEQ_LENGTH, dtype="int64"))

    def padded(self) -> Callable[[], Iterator]:
        """As many places in a batch, with documents of similar lengths."""
        tokens = _SEQ_LENGTH * _ROWS
        sampler = functools.partial(pinfeed.LengthBucketSampler, max_tokens=tokens)
        return self.loader(sampler, pinfeed.Pad(dtype="int64", lengths=False))

    def trl(self) -> Callable[[], Iterator]:
        """`pack_dataset`, then a DataLoader over its rows, which differ in length."""
        import pyarrow as pa
        from datasets import Dataset, disable_progress_bars
        from trl import pack_dataset

        disable_progress_bars()
        ragged = pinfeed.RaggedArray.open(self.path)
        offsets = pa.array(ragged.offsets)
        documents = pa.LargeListArray.from_arrays(offsets, pa.array(ragged.values))
        dataset = Dataset(pa.table({"input_ids": documents}))

        def collate(rows):
            return torch.nn.utils.rnn.pad_sequence([r["input_ids"] for r in rows], True)

        def epoch():
            packed = pack_dataset(dataset, _SEQ_LENGTH, "bfd").with_format("torch")
            return iter(DataLoader(packed, _ROWS, shuffle=True, collate_fn=collate))

        return epoch

    def torchtune(self) -> Callable[[], Iterator]:
        """As its PackedDataset: once before training, in order, document after document."""
        ragged = pinfeed.RaggedArray.open(self.path)

        def epoch():
            rows = []
            row: list[int] = []
            for i in range(len(ragged)):
                tokens = ragged[i].tolist()
                if len(row) + len(tokens) > _SEQ_LENGTH:
                    rows.append(torch.tensor(row + [0] * (_SEQ_LENGTH - len(row))))
                    row = []
                row += tokens
            rows.append(torch.tensor(row + [0] * (_SEQ_LENGTH - len(row))))
            return iter(DataLoader(rows, _ROWS, shuffle=True))

        return epoch


def packed_epoch(name: str, count: int, peers: bool) -> Workload:
    """Planning, or packing, is part of each epoch."""
    epoch = PackedEpoch(count)
    ways = [
        Way("**pinfeed** `PackSampler`, `Pack`", epoch.packed, Role.PINFEED),
        Way("pinfeed `LengthBucketSampler`, `Pad`", epoch.padded, Role.PINFEED),
    ]
    if peers:
        ways += [
            Way("TRL `pack_dataset`, DataLoader", epoch.trl),
            Way("in order once, as torchtune's `PackedDataset`", epoch.torchtune),
        ]
    title = (
        f"{epoch.count:,} uint16 tokens of {count:,} documents in a file: a shuffled epoch of int64 "
        f"batches of {_ROWS} × {_SEQ_LENGTH}, planning included"
    )
    return Workload(name, title, ways, epoch.error, consume=exhaust)


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return the workloads here by name: their number of threads and what makes them."""
    return {
        "pack-epoch": (1, functools.partial(packed_epoch, count=1_000_000, peers=False)),
        "pack-epoch-small": (1, functools.partial(packed_epoch, count=20_000, peers=True)),
    }
