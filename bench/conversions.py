"""Conversions between PyTorch, NumPy, TensorFlow and Ray."""

from functools import partial

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import pinfeed
from bench import peers
from bench.data import MEAN, STD, lengths_of, normalized, padded, random_bytes, sequences
from bench.harness import Job, at_least, at_most, difference, other, ours, reference, workload

SHAPES = {"40 × (500, 256)": 1.3, "40 × (64, 10)": 2.0, "2,000 × (32, 8)": 2.0}
LARGE = "196 × (256, 3, 32, 32)"


@workload(
    *(
        at_most(b, f"`to_numpy`, {s}", f"`np.concatenate`, {s}", why=(2.5, "not known"))
        for s, b in SHAPES.items()
    ),
    at_most(
        1.3,
        f"`to_numpy`, {LARGE}",
        f"copy {LARGE}",
        why=(1.47, "the copy writes to existing memory; the result's pages are new each time"),
    ),
    at_most(1.05, f"`to_numpy`, {LARGE}", f"copy {LARGE}", quantity="peak"),
    at_most(1.05, "`to_numpy` of an iterator", f"copy {LARGE}", quantity="peak"),
)
def to_numpy():
    """Batches in memory as one array."""
    alternatives = []
    for shape in [*SHAPES, LARGE]:
        count, rows, *item = (
            int(x) for x in shape.replace(",", "").replace("× (", "")[:-1].split()
        )
        whole = np.random.default_rng(0).random((count * rows, *item), np.float32)
        batches, expected = torch.from_numpy(whole).split(rows), {"expected": whole}
        arrays = [batch.numpy() for batch in batches]
        expected["job"] = shape
        alternatives += [
            reference(f"copy {shape} once", whole.copy, job=shape),
            ours(f"`to_numpy`, {shape}", partial(pinfeed.to_numpy, batches), **expected),
            other(f"`np.concatenate`, {shape}", partial(np.concatenate, arrays), **expected),
            other(f"`torch.cat`, {shape}", partial(torch.cat, batches), **expected),
        ]
    unknown = "`to_numpy` of an iterator, whose length it does not know"
    alternatives.append(ours(unknown, lambda: pinfeed.to_numpy(iter(batches)), **expected))
    return Job(*alternatives)


@workload(
    at_most(1.3, "`to_tensorflow(channels_last=True)`", "copy the batch"),
    at_least(3, "NHWC: NumPy", "`to_tensorflow(channels_last=True)`"),
    at_least(
        1, "98 KB: `Dataset.from_generator`", "98 KB: `to_tensorflow`", why=(0.7, "not known")
    ),
)
def to_tensorflow():
    """A batch of 154 MB in NCHW for TensorFlow, and the cost of one of 98 KB with labels."""
    import tensorflow as tf

    batch = torch.rand(256, 3, 224, 224)
    out, moved = torch.empty_like(batch), batch.permute(0, 2, 3, 1)
    endless = [batch] * 1_000_000  # one pass takes longer than any measurement
    nchw, nhwc = (pinfeed.to_tensorflow(endless, channels_last=last) for last in (False, True))
    labeled = torch.rand(8, 3, 32, 32), torch.arange(8)
    pairs = [labeled] * 1_000_000
    arrays = lambda: ((images.numpy(), labels.numpy()) for images, labels in pairs)
    signature = (tf.TensorSpec((None, 3, 32, 32), tf.float32), tf.TensorSpec((None,), tf.int64))
    generated = tf.data.Dataset.from_generator(arrays, output_signature=signature)

    def by_torch():
        there = batch.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
        return tf.experimental.dlpack.from_dlpack(there.__dlpack__())

    def by_numpy():
        return tf.convert_to_tensor(np.ascontiguousarray(moved.numpy()))

    def expecting(tensor, job):
        return {"expected": lambda result: difference(result.numpy(), tensor), "job": job}

    plain, to_nhwc = expecting(batch, "as it is"), expecting(moved, "NHWC")
    images_of = lambda pair: difference(pair[0].numpy(), labeled[0])
    small = {"expected": images_of, "job": "98 KB"}

    return Job(
        reference("copy the batch (`copy_`)", lambda: out.copy_(batch), job="as it is"),
        reference("NHWC: copy the batch (`copy_`)", lambda: out.copy_(batch), job="NHWC"),
        ours("`to_tensorflow`", partial(next, iter(nchw)), **plain),
        ours("`to_tensorflow(channels_last=True)`", partial(next, iter(nhwc)), **to_nhwc),
        ours("98 KB: `to_tensorflow`", partial(next, iter(pinfeed.to_tensorflow(pairs))), **small),
        other("98 KB: `Dataset.from_generator`", partial(next, iter(generated)), **small),
        other("NHWC: NumPy `ascontiguousarray`, `convert_to_tensor`", by_numpy, **to_nhwc),
        other("NHWC: torch `contiguous`, DLPack", by_torch, **to_nhwc),
    )


@workload(
    at_least(
        10,
        "images: Ray's default, then torch, best",
        "images: `RayCollate(Image)`",
        why=(4.9, "not known; met on an AMD EPYC"),
    ),
    at_least(5, "tokens: an ndarray for each row, `pad_sequence`", "tokens: `RayCollate(Pad)`"),
    at_least(1, "tokens: an ndarray for each row, `np.zeros`", "tokens: `RayCollate(Pad)`"),
)
def ray():
    """Ray Data: a batch of 256, from Arrow's memory to tensors."""
    import pyarrow as pa
    from ray.data.block import BlockAccessor
    from ray.data.collate_fn import DefaultCollateFn
    from ray.data.extensions import ArrowTensorArray

    from pinfeed.integrations.ray import RayCollate

    photos, arrays = random_bytes(256, 224, 224, 3), sequences(256, 511)
    images = pa.table({"image": ArrowTensorArray.from_numpy(photos)})
    tokens = pa.table({"tokens": pa.array(arrays)})
    mean, std = peers.constants()
    default, out = DefaultCollateFn(combine_chunks=True), torch.zeros(256, 3, 224, 224)

    def rows_of_ray():
        """Ray's batches, as it passes them to a plain function."""
        return BlockAccessor.for_block(tokens).to_batch_format("numpy")["tokens"]

    def best():
        planes = default(images)["image"].permute(peers.ORDER)
        return {"image": torch.empty(out.shape).copy_(planes).sub_(mean).div_(std)}

    def with_torch():
        tensors = [torch.as_tensor(row) for row in rows_of_ray()]
        return {"tokens": pad_sequence(tensors, True), "lengths": lengths_of(tensors)}

    def with_numpy():
        rows = rows_of_ray()
        values = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for slot, row in zip(values, rows, strict=True):
            slot[: len(row)] = row
        return {"tokens": torch.from_numpy(values), "lengths": lengths_of(rows)}

    by_image = partial(RayCollate({"image": pinfeed.Image(MEAN, STD)}), images)
    by_pad = partial(RayCollate({"tokens": pinfeed.Pad(lengths="lengths")}), tokens)
    of_images = {"expected": {"image": normalized(photos)}, "job": "images"}
    of_tokens = {"expected": {"tokens": padded(arrays), "lengths": lengths_of(arrays)}}
    of_tokens["job"] = "tokens"
    each = "tokens: an ndarray for each row"
    return Job(
        reference("fill the images (`out.fill_`)", lambda: out.fill_(1), job="images"),
        ours("images: `RayCollate(Image)`", by_image, **of_images),
        other("images: Ray's default, then torch, best by hand", best, **of_images),
        ours("tokens: `RayCollate(Pad)`", by_pad, **of_tokens),
        other(f"{each}, `np.zeros` filled", with_numpy, **of_tokens),
        other(f"{each}, `pad_sequence`", with_torch, **of_tokens),
        tolerance=4e-6,
    )
