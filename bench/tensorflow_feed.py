"""A loader's batches for TensorFlow, beside the loader alone and beside a copy of the batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pinfeed
from bench.epoch import Epoch, exhaust
from bench.harness import Role, Way, Workload
from bench.image_ways import MEAN, STD

SHAPE = (256, 3, 224, 224)


def _same(tensor: Any, expected: np.ndarray) -> float:
    """0 if a tensor of TensorFlow has these bits."""
    array = tensor.numpy()
    same = array.dtype == expected.dtype and np.array_equal(array, expected)
    return 0.0 if same else float("inf")


def feed(name: str) -> Workload:
    """An epoch of the same batches, as torch gives and as TensorFlow gets them."""
    import tensorflow as tf

    epoch = Epoch()
    dataset = pinfeed.ArrayDataset((epoch.images, epoch.labels))
    loader = epoch.loader(dataset, pinfeed.Collate((pinfeed.Image(MEAN, STD), None)))
    signature = (
        tf.TensorSpec((None, 3, 32, 32), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )

    def as_torch(batches: Any) -> float:
        return epoch.error(tuple(torch.from_numpy(x.numpy()) for x in batch) for batch in batches)

    def generated() -> Callable[[], Any]:
        dataset = tf.data.Dataset.from_generator(
            lambda: ((x.numpy(), y.numpy()) for x, y in loader), output_signature=signature
        )
        return lambda: iter(dataset)

    def converted() -> Callable[[], Any]:
        dataset = pinfeed.to_tensorflow(loader)
        return lambda: iter(dataset)

    def prefetched() -> Callable[[], Any]:
        dataset = pinfeed.to_tensorflow(loader).prefetch(2)
        return lambda: iter(dataset)

    ways = [
        Way("physical limit: the DataLoader alone", lambda: lambda: iter(loader), Role.LIMIT),
        Way("**pinfeed** `to_tensorflow`", converted, Role.PINFEED, error=as_torch),
        Way(
            "**pinfeed** `to_tensorflow`, `.prefetch(2)`", prefetched, Role.PINFEED, error=as_torch
        ),
        Way("TensorFlow `Dataset.from_generator`", generated, error=as_torch),
    ]
    title = "Epoch over 50000x32x32x3, batches of 256 for TensorFlow, 1 thread(s)"
    return Workload(name, title, ways, epoch.error, consume=exhaust, images=len(epoch.images))


def channels_last(name: str) -> Workload:
    """One float32 batch of NCHW, handed over as NHWC."""
    import tensorflow as tf

    batch = torch.rand(SHAPE)
    expected = batch.permute(0, 2, 3, 1).contiguous().numpy()
    out = torch.empty_like(batch)
    endless = [batch] * 1_000_000  # one pass over it is longer than any measurement
    dataset = pinfeed.to_tensorflow(endless, channels_last=True)

    def converted() -> Callable[[], Any]:
        batches = iter(dataset)
        return lambda: next(batches)

    def by_hand() -> Any:
        return tf.convert_to_tensor(np.ascontiguousarray(batch.permute(0, 2, 3, 1).numpy()))

    def permuted() -> np.ndarray:
        return np.ascontiguousarray(batch.permute(0, 2, 3, 1).numpy())

    def by_torch() -> Any:
        moved = batch.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
        return tf.experimental.dlpack.from_dlpack(moved.__dlpack__())

    def error(array: Any) -> float:
        return _same(array, expected)

    def plain(array: np.ndarray) -> float:
        return 0.0 if np.array_equal(array, expected) else float("inf")

    ways = [
        Way(
            "physical limit: copy the batch (`out.copy_`)",
            lambda: lambda: out.copy_(batch),
            Role.LIMIT,
        ),
        Way("**pinfeed** `to_tensorflow(channels_last=True)`", converted, Role.PINFEED),
        Way("NumPy `permute(...).numpy()`, `ascontiguousarray`", lambda: permuted, error=plain),
        Way("the same, `tf.convert_to_tensor`", lambda: by_hand),
        Way("torch `contiguous(channels_last)`, DLPack", lambda: by_torch),
    ]
    title = f"{'x'.join(map(str, SHAPE))} float32 NCHW → TensorFlow, NHWC, 1 thread(s)"
    return Workload(name, title, ways, error, images=len(batch))


def workloads():
    """Return every workload here by name: its number of threads and what makes it."""
    return {"tensorflow": (1, feed), "tensorflow-channels-last": (1, channels_last)}
