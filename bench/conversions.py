"""Conversions between PyTorch, NumPy, TensorFlow and Ray."""

import re
from functools import partial

import numpy as np
import torch

import pinfeed
from bench import data, peers
from bench.data import MEAN, STD, by_torch, difference, lengths_of, normalized, padded
from bench.harness import compare, other, ours, reference, workload
from bench.targets import ELSEWHERE, at_least, at_most

SHAPES = {"40 × (500, 256)": 1.3, "40 × (64, 10)": 2.0, "2,000 × (32, 8)": 2.0}
LARGE = "196 × (256, 3, 32, 32)"
NEW_PAGES = "the copy writes to existing memory; the result's pages are new each time"
RAY, ROWS = "images: Ray's default, then torch, best", "tokens: an ndarray for each row"


@workload(
    *(
        at_most(b, f"`to_numpy`, {s}", f"`np.concatenate`, {s}", why=(2.5, "not known"))
        for s, b in SHAPES.items()
    ),
    at_most(1.3, f"`to_numpy`, {LARGE}", f"copy {LARGE}", why=(1.47, NEW_PAGES)),
    at_most(1.05, f"`to_numpy`, {LARGE}", f"copy {LARGE}", quantity="peak"),
    at_most(1.05, "`to_numpy` of an iterator", f"copy {LARGE}", quantity="peak"),
)
def to_numpy():
    """Batches in memory as one array."""
    alternatives = []
    for shape in [*SHAPES, LARGE]:
        count, rows, *item = map(int, re.findall(r"\d+", shape.replace(",", "")))
        whole = np.random.default_rng(0).random((count * rows, *item), np.float32)
        batches, about = torch.from_numpy(whole).split(rows), {"expected": whole, "job": shape}
        arrays = [batch.numpy() for batch in batches]
        alternatives += [
            reference(f"copy {shape} once", whole.copy, job=shape),
            ours(f"`to_numpy`, {shape}", partial(pinfeed.to_numpy, batches), **about),
            other(f"`np.concatenate`, {shape}", partial(np.concatenate, arrays), **about),
            other(f"`torch.cat`, {shape}", partial(torch.cat, batches), **about),
        ]
    unknown = "`to_numpy` of an iterator, whose length it does not know"
    alternatives.append(ours(unknown, lambda: pinfeed.to_numpy(iter(batches)), **about))
    return alternatives


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

    return compare(
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
    at_least(10, RAY, "images: `RayCollate(Image)`", why=(4.9, ELSEWHERE)),
    at_least(5, f"{ROWS}, `pad_sequence`", "tokens: `RayCollate(Pad)`"),
    at_least(1, f"{ROWS}, `np.zeros`", "tokens: `RayCollate(Pad)`"),
)
def ray():
    """Ray Data: a batch of 256, from Arrow's memory to tensors."""
    import pyarrow as pa
    from ray.data.block import BlockAccessor
    from ray.data.collate_fn import DefaultCollateFn
    from ray.data.extensions import ArrowTensorArray

    from pinfeed.integrations.ray import RayCollate

    photos, arrays = data.random_bytes(256, 224, 224, 3), data.sequences(256, 511)
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
        return by_torch([torch.as_tensor(row) for row in rows_of_ray()])

    def with_numpy():
        rows = rows_of_ray()
        return padded(rows), lengths_of(rows)

    by_image = partial(RayCollate({"image": pinfeed.Image(MEAN, STD)}), images)
    by_pad = RayCollate({"tokens": pinfeed.Pad(lengths="lengths")})
    of_images = {"expected": {"image": normalized(photos)}, "job": "images"}
    of_tokens = {"expected": (padded(arrays), lengths_of(arrays)), "job": "tokens"}
    return compare(
        reference("fill the images (`out.fill_`)", lambda: out.fill_(1), job="images"),
        ours("images: `RayCollate(Image)`", by_image, **of_images),
        other(f"{RAY} by hand", best, **of_images),
        ours("tokens: `RayCollate(Pad)`", lambda: [*by_pad(tokens).values()], **of_tokens),
        other(f"{ROWS}, `np.zeros` filled", with_numpy, **of_tokens),
        other(f"{ROWS}, `pad_sequence`", with_torch, **of_tokens),
        tolerance=4e-6,
    )
