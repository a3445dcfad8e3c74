"""An epoch over a Hugging Face dataset on disk, through torch's DataLoader, shuffled."""

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import pinfeed
from bench.epoch import IndexDataset, exhaust
from bench.harness import Role, Way, Workload
from bench.peers import hugging_face

Batches = Iterator[dict[str, torch.Tensor]]


class ArrowEpoch:
    """Rows with their own numbers as labels, so that every shuffled batch can be checked.

    Args:
        columns: Arrays whose first axis counts rows.
        batch_size: Rows in one batch.
    """

    def __init__(self, columns: dict[str, np.ndarray], batch_size: int = 256) -> None:
        self.columns = columns
        self.count = len(next(iter(columns.values())))
        self.columns["label"] = np.arange(self.count)
        self.batch_size = batch_size
        self._opened: Any = None
        self._folder = tempfile.TemporaryDirectory(prefix="pinfeed-bench-")

    def opened(self) -> Any:
        """Return the dataset, memory-mapped, of which the system has every page by now."""
        if self._opened is None:
            self._opened = hugging_face.stored(self.columns, self._folder.name)
        return self._opened

    def loader(self, dataset, collate: Callable | None = None) -> DataLoader:
        """Return torch's DataLoader, without workers."""
        return DataLoader(dataset, self.batch_size, shuffle=True, collate_fn=collate)

    def error(self, batches: Batches, exact: bool = True) -> float:
        """Check every batch by its labels; infinity unless each row comes up once.

        Dtypes too, if ``exact``: the formats of datasets make integers int64.
        """
        seen = []
        for batch in batches:
            rows = batch["label"].numpy()
            seen.append(rows)
            for name, column in self.columns.items():
                got = batch[name].numpy()
                same_dtype = got.dtype == column.dtype or not exact
                if not (same_dtype and np.array_equal(got, column[rows])):
                    return float("inf")
        return self.index_error(seen)

    def index_error(self, batches) -> float:
        """Check that an epoch names each row once."""
        rows = np.sort(np.concatenate([np.asarray(batch) for batch in batches]))
        return 0.0 if np.array_equal(rows, np.arange(self.count)) else float("inf")


def _ways(epoch: ArrowEpoch) -> list[Way]:
    def copy():
        arrays = [column[: epoch.batch_size] for column in epoch.columns.values()]
        outs = [np.empty_like(array) for array in arrays]
        batches = range(0, epoch.count, epoch.batch_size)

        def copied():
            for _ in batches:
                for out, array in zip(outs, arrays, strict=True):
                    np.copyto(out, array)
                yield outs

        return copied

    def overhead():
        loader = epoch.loader(IndexDataset(epoch.count), lambda indices: indices)
        return lambda: iter(loader)

    def ours():
        dataset = pinfeed.ArrayDataset.from_arrow(epoch.opened())
        loader = epoch.loader(dataset, pinfeed.Collate())
        return lambda: iter(loader)

    def in_memory():
        dataset = pinfeed.ArrayDataset(epoch.columns)
        loader = epoch.loader(dataset, pinfeed.Collate())
        return lambda: iter(loader)

    def formatted(kind):
        def build():
            loader = epoch.loader(epoch.opened().with_format(kind))
            return lambda: iter(loader)

        return build

    def value_error(batches):
        return epoch.error(batches, exact=False)

    return [
        Way("physical limit: copy one batch again and again", copy, Role.LIMIT),
        Way("DataLoader alone (indices only)", overhead, Role.OVERHEAD, error=epoch.index_error),
        Way("**pinfeed** `ArrayDataset.from_arrow`", ours, Role.PINFEED),
        Way("**pinfeed** `ArrayDataset` of plain arrays", in_memory, Role.PINFEED),
        Way('datasets `with_format("torch")`', formatted("torch"), error=value_error),
        Way('datasets `with_format("numpy")`', formatted("numpy"), error=value_error),
    ]


def _workload(name: str, what: str, epoch: ArrowEpoch) -> Workload:
    title = (
        f"{epoch.count:,} rows of a Hugging Face dataset on disk, {what}, shuffled, batches of "
        f"{epoch.batch_size}, 0 workers, {torch.get_num_threads()} thread(s)"
    )
    return Workload(name, title, _ways(epoch), epoch.error, consume=exhaust)


def tokens(name: str) -> Workload:
    """What a tokenizer made of texts, padded to one length."""
    ids = np.random.default_rng(0).integers(0, 50_000, (20_000, 128))
    columns = {"input_ids": ids, "attention_mask": (ids > 1000).astype(np.int8)}
    return _workload(name, "128 token ids and a mask each", ArrowEpoch(columns))


def images(name: str) -> Workload:
    """Small images."""
    pixels = np.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8)
    return _workload(name, "a 32x32x3 uint8 image each", ArrowEpoch({"image": pixels}))


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    return {"epoch-arrow": (1, tokens), "epoch-arrow-images": (1, images)}
