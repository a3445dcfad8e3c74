"""Batches of Ray Data as tensors: `RayCollate` beside Ray's own way and what users write.

What is timed is what Ray's iterator does with a batch: from the Arrow table that it has cut out of
its blocks, to the format that a collate function asks for, to tensors. `ray-epoch-*` iterate a
dataset in the object store of a Ray on this machine.
"""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import pinfeed
from bench.epoch import exhaust
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, ROUNDING, STD, ImageBatch, fill_ways
from bench.sequences import SequenceBatch, tensor_lengths

CPUS = 2
EPOCH_ROWS = 2048


def as_ray_hands_it(collate_fn: Any, table: Any) -> Callable[[], Any]:
    """Return what Ray does with a batch: the collate function's format, then the function."""
    from ray.data.block import BlockAccessor
    from ray.data.collate_fn import ArrowBatchCollateFn

    if isinstance(collate_fn, ArrowBatchCollateFn):
        return lambda: collate_fn(table)
    return lambda: collate_fn(BlockAccessor.for_block(table).to_batch_format("numpy"))


class Images:
    """A column of uint8 images, normalized into float32 NCHW."""

    def __init__(self, count: int, size: int) -> None:
        self.batch = ImageBatch(count, size, size)
        self.mean = self.batch.per_channel(MEAN, torch.float32)
        self.std = self.batch.per_channel(STD, torch.float32)

    @cached_property
    def table(self) -> Any:
        """As a block of Ray, over the same memory."""
        import pyarrow as pa
        from ray.data.extensions import ArrowTensorArray

        return pa.table({"image": ArrowTensorArray.from_numpy(self.batch.images)})

    def pinfeed(self) -> Any:
        from pinfeed.integrations.ray import RayCollate

        return RayCollate({"image": pinfeed.Image(MEAN, STD)})

    def default(self) -> Any:
        """Ray's own: a tensor over the object store's memory, normalized by the training loop."""
        from ray.data.collate_fn import DefaultCollateFn

        return DefaultCollateFn(combine_chunks=True)

    def as_written(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Normalize as one usually does in torch."""
        images = batch["image"].permute(0, 3, 1, 2).float().div_(255)
        return {"image": images.sub_(self.mean).div_(self.std).contiguous()}

    def by_hand(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Normalize in the fastest way that torch has, into a tensor of its own."""
        images = torch.empty(self.batch.out.shape[:1] + self.batch.out.shape[1:])
        images = images[: len(batch["image"])].copy_(batch["image"].permute(0, 3, 1, 2))
        return {"image": images.div_(255).sub_(self.mean).div_(self.std)}


class Tokens:
    """A column of lists of int64, padded, with lengths."""

    def __init__(self) -> None:
        self.batch = SequenceBatch(256, 511)

    @cached_property
    def table(self) -> Any:
        """As a block of Ray."""
        import pyarrow as pa

        return pa.table({"tokens": pa.array(self.batch.arrays)})

    def pinfeed(self) -> Any:
        from pinfeed.integrations.ray import RayCollate

        return RayCollate({"tokens": pinfeed.Pad(lengths="lengths")})

    def numpy(self) -> Any:
        """An array for each row, as Ray's guide has it, for torch to pad."""
        from ray.data.collate_fn import NumpyBatchCollateFn

        class Collate(NumpyBatchCollateFn):
            def __call__(self, batch):
                rows = [torch.as_tensor(row) for row in batch["tokens"]]
                return {
                    "tokens": pad_sequence(rows, batch_first=True),
                    "lengths": tensor_lengths(rows),
                }

        return Collate()

    def numpy_loop(self) -> Any:
        """The same, by NumPy alone."""
        from ray.data.collate_fn import NumpyBatchCollateFn

        class Collate(NumpyBatchCollateFn):
            def __call__(self, batch):
                rows = batch["tokens"]
                lengths = np.fromiter(map(len, rows), np.int64, len(rows))
                tokens = np.zeros((len(rows), lengths.max()), np.int64)
                for i, row in enumerate(rows):
                    tokens[i, : len(row)] = row
                return {"tokens": torch.from_numpy(tokens), "lengths": torch.from_numpy(lengths)}

        return Collate()

    def lists(self) -> Any:
        """As lists of int, which tokenizers' own collators take."""
        from ray.data.collate_fn import ArrowBatchCollateFn

        class Collate(ArrowBatchCollateFn):
            def __call__(self, batch):
                rows = [torch.tensor(row) for row in batch.column("tokens").to_pylist()]
                return {
                    "tokens": pad_sequence(rows, batch_first=True),
                    "lengths": tensor_lengths(rows),
                }

        return Collate()


def images(name: str) -> Workload:
    """One batch of images."""
    job = Images(256, 224)

    def then(normalize: Callable) -> Callable:
        def build():
            run = as_ray_hands_it(job.default(), job.table)
            return lambda: normalize(run())

        return build

    ways = [
        *fill_ways(job.batch.out),
        Way(
            "**pinfeed** `RayCollate(Image)`",
            lambda: as_ray_hands_it(job.pinfeed(), job.table),
            Role.PINFEED,
        ),
        Way(
            "Ray's default, then torch, best by hand",
            then(job.by_hand),
            tolerance=ROUNDING[torch.float32],
        ),
        Way(
            "Ray's default, then torch, as usually written",
            then(job.as_written),
            tolerance=ROUNDING[torch.float32],
        ),
    ]
    title = f"Ray Data: 256x224x224x3 uint8 → float32 NCHW, normalized, {_threads()}"
    return Workload(
        name, title, ways, error=lambda batch: job.batch.error(batch["image"]), images=256
    )


def tokens(name: str) -> Workload:
    """One batch of sequences."""
    job = Tokens()

    def way(label: str, make: Callable, role: Role = Role.PEER) -> Way:
        return Way(label, lambda: as_ray_hands_it(make(), job.table), role)

    ways = [
        *fill_ways(job.batch.out),
        way("**pinfeed** `RayCollate(Pad)`", job.pinfeed, Role.PINFEED),
        way("`NumpyBatchCollateFn`, rows into `np.zeros`", job.numpy_loop),
        way("`NumpyBatchCollateFn`, torch `pad_sequence`", job.numpy),
        way("`ArrowBatchCollateFn`, `to_pylist`, torch `pad_sequence`", job.lists),
    ]
    title = f"Ray Data: {job.batch.title()}, a column of lists → padded, with lengths, {_threads()}"

    def error(batch: dict[str, Any]) -> float:
        return job.batch.error((batch["tokens"], batch["lengths"]))

    return Workload(name, title, ways, error=error)


def image_epoch(name: str) -> Workload:
    """An epoch over images in the object store."""
    job = Images(256, 224)
    ray = _start_ray()
    blocks = [ray.put(job.table) for _ in range(EPOCH_ROWS // 256)]
    dataset = ray.data.from_arrow_refs(blocks)

    def epoch(make: Callable, finish: Callable | None = None) -> Callable:
        def run():
            for batch in dataset.iter_torch_batches(batch_size=256, collate_fn=make()):
                yield batch if finish is None else finish(batch)

        return lambda: run

    def error(batches) -> float:
        return max(job.batch.error(batch["image"]) for batch in batches)

    ways = [
        Way(
            "Ray alone: uint8 tensors that nobody reads",
            epoch(job.default),
            Role.OVERHEAD,
            error=_any,
        ),
        Way("**pinfeed** `RayCollate(Image)`", epoch(job.pinfeed), Role.PINFEED),
        Way(
            "Ray's default, then torch, best by hand",
            epoch(job.default, job.by_hand),
            tolerance=ROUNDING[torch.float32],
        ),
        Way(
            "Ray's default, then torch, as usually written",
            epoch(job.default, job.as_written),
            tolerance=ROUNDING[torch.float32],
        ),
    ]
    title = f"Ray Data: epoch over {EPOCH_ROWS} images of 224x224 in the object store, {_threads()}"
    return Workload(
        name, title, ways, error=error, consume=exhaust, repeat=False, images=EPOCH_ROWS
    )


def _any(batches) -> float:
    exhaust(batches)
    return 0.0


def _threads() -> str:
    return f"{torch.get_num_threads()} thread(s)"


def _start_ray() -> Any:
    import ray

    size = EPOCH_ROWS * 224 * 224 * 3
    ray.init(
        num_cpus=CPUS,
        object_store_memory=2 * size,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # now that importing it has set it
    context.execution_options.preserve_order = True
    return ray


def workloads() -> dict[str, tuple[int, Callable[[str], Workload]]]:
    """Return every workload here by name: its number of threads and what makes it."""
    return {"ray-images": (1, images), "ray-tokens": (1, tokens), "ray-epoch": (1, image_epoch)}
