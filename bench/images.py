"""One batch of images, normalized."""

import ctypes
from functools import partial

import numpy as np
import torch
from torch.utils.data import default_collate

import pinfeed
from bench import peers
from bench.data import MEAN, ROUNDED, STD, Draw, difference, normalized, random_bytes, zero_if
from bench.harness import built, compare, filling, other, ours, reference, workload
from bench.targets import ELSEWHERE, at_least, at_most
from pinfeed import augment

TORCHVISION = "torchvision v2 per image + copy into zeros"


@workload(
    at_most(1.10),
    at_most(1.10, "`normalize`, pooled", "`normalize(out=)`"),
    at_most(16, "`normalize`, pooled", unit="page faults"),
    at_most(
        1.10,
        "`normalize(out=)` of ndarrays, 16 bytes",
        "`normalize(out=)` of ndarrays",
        why=(1.25, ELSEWHERE),
    ),
    at_most(1.00, "`normalize(out=)`, 2 threads", "`normalize(out=)`"),
    at_least(1),
    at_least(4, "torch, best", why=(3.2, "3.6 on a Cascade Lake; met on an AMD EPYC")),
    at_least(12, "OpenCV", why=(9.5, ELSEWHERE)),
    at_least(15, "torchvision", why=(9.2, ELSEWHERE)),
    usual="torch, as usually written",
)
def images():
    """256 images of 224×224: uint8 NHWC → float32 NCHW, normalized."""
    photos = random_bytes(256, 224, 224, 3)
    batch, out = torch.from_numpy(photos), torch.zeros(256, 3, 224, 224)
    # Where `np.empty` begins, 16 bytes after the beginning of a cache line.
    memory = torch.zeros(out.numel() + 32)
    begin = -memory.data_ptr() % 64 // 4 + 4
    shifted = memory[begin : begin + out.numel()].view(out.shape)
    tensors = partial(pinfeed.functional.normalize, batch, MEAN, STD)
    arrays = partial(pinfeed.functional.normalize, photos, MEAN, STD)
    of_arrays = "`normalize(out=)` of ndarrays"
    return compare(
        filling(out),
        reference("C library's `memset`", lambda: ctypes.memset(out.data_ptr(), 1, out.nbytes)),
        ours("`normalize(out=)`", partial(tensors, out=out)),
        ours("`normalize`, pooled", tensors),
        ours(of_arrays, partial(arrays, out=out.numpy())),
        ours(f"{of_arrays}, 16 bytes after a cache line", partial(arrays, out=shifted.numpy())),
        ours("`normalize(out=)`, 2 threads", partial(tensors, out=out), threads=2),
        *peers.normalizing(photos, out),
        expected=normalized(photos),
        tolerance=2 * ROUNDED,
        outputs=[out, shifted],
    )


@workload(
    at_least(1, "torch, best", why=(0.9, "6 of 9 µs check the arguments")),
    at_least(1, why=(0.21, "the loop checks no arguments and writes NHWC")),
)
def one_image():
    """One image of 32×32, normalized: the cost of the call itself."""
    photos, out = random_bytes(1, 32, 32, 3), torch.zeros(1, 3, 32, 32)
    run = partial(pinfeed.functional.normalize, photos, MEAN, STD, out=out.numpy())
    return compare(
        filling(out),
        ours("`normalize(out=)`", run),
        *peers.normalizing(photos, out),
        expected=normalized(photos),
        tolerance=2 * ROUNDED,
        outputs=[out],
    )


@workload(at_most(1.35), at_least(4, "torch, best"), at_least(15, "torchvision"))
def gathered():
    """256 random images of 8,000 of 224×224 in memory, normalized."""
    photos = random_bytes(8000, 224, 224, 3)
    tensor, draw, out = torch.from_numpy(photos), Draw(8000), torch.zeros(256, 3, 224, 224)
    dataset, collate = pinfeed.ArrayDataset(photos), pinfeed.Collate(pinfeed.Image(MEAN, STD))
    rows = torch.zeros(256, 224, 224, 3, dtype=torch.uint8)
    mean, std = peers.constants()

    def by_torch():
        torch.index_select(tensor, 0, draw.tensor, out=rows)
        return out.copy_(rows.permute(peers.ORDER)).sub_(mean).div_(std)

    def by_torchvision():
        transform = peers.to_normalized()
        return lambda: default_collate([transform(photos[i]) for i in draw.array.tolist()])

    return compare(
        filling(out),
        ours("`ArrayDataset`, `Collate(Image)`", lambda: collate(dataset.__getitems__(draw.array))),
        other("torch, best by hand (`index_select`, `copy_`, …)", by_torch),
        other("torchvision v2 per sample + `default_collate`", built(by_torchvision)),
        expected=lambda batch: difference(batch, normalized(photos[draw.array])),
        tolerance=ROUNDED,
        prepare=draw.again,
    )


BF16 = "fill the same bfloat16 bytes"


@workload(
    at_most(1.30, "to bfloat16", BF16, why=(1.61, "AVX2 rounds to bfloat16 by integer operations")),
    at_most(1.20, "of uint16", "read the same bytes of uint16", why=(1.32, "1.2 on a quiet host")),
    at_most(1.20, "of float32", "read the same bytes of float32"),
    at_most(1.05, "clips", "to float32"),
    at_most(
        1.05,
        "half of them flipped",
        "to float32",
        why=(1.25, "each flipped row is a run; an unflipped image is a single run"),
    ),
)
def image_kinds():
    """128 images of 224×224: other dtypes, clips, flips."""
    photos = random_bytes(128, 224, 224, 3)
    whole, halves = normalized(photos), torch.zeros(128, 3, 224, 224, dtype=torch.bfloat16)
    wide, floats = photos.astype(np.uint16) * 257, photos.astype(np.float32) / 255

    def collated(samples, **options):
        collate = pinfeed.Collate(pinfeed.Image(MEAN, STD, **options), seed=0)
        rows = pinfeed.ArrayDataset(samples).__getitems__(np.arange(len(samples)))
        return lambda: collate(rows)

    def read_and_fill(samples):
        words, out = torch.from_numpy(samples).view(-1).view(torch.int64), torch.zeros(whole.shape)
        return lambda: (words.sum(), out.fill_(1))

    def flipped_error(result):
        flips = (result[:, :, :, 0] != whole[:, :, :, 0]).flatten(1).any(1)
        expected = torch.where(flips.view(-1, 1, 1, 1), whole.flip(3), whole)
        return difference(result, expected) + zero_if(30 < flips.sum() < 98)

    rounded = normalized(photos, torch.bfloat16)
    clips = collated(photos.reshape(8, 16, 224, 224, 3), input="THWC", output="CTHW")
    in_clips = whole.view(8, 16, 3, 224, 224).transpose(1, 2)
    flips = collated(photos, augment=augment.RandomHorizontalFlip())
    return compare(
        reference(BF16, lambda: halves.fill_(1)),
        reference("read the same bytes of uint16 and fill", read_and_fill(wide)),
        reference("read the same bytes of float32 and fill", read_and_fill(floats)),
        ours("to float32", collated(photos)),
        ours("to bfloat16", collated(photos, dtype=torch.bfloat16), expected=rounded),
        ours("of uint16", collated(wide), tolerance=ROUNDED),
        ours("of float32", collated(floats), tolerance=ROUNDED),
        ours("clips of 16 frames", clips, expected=in_clips),
        ours("half of them flipped", flips, expected=flipped_error),
        expected=whole,
    )


@workload(at_least(10, TORCHVISION, why=(5.4, ELSEWHERE)))
def mixed_sizes():
    """32 images of 100–500 pixels a side, normalized and padded."""
    sides = np.random.default_rng(0).integers(100, 501, (32, 2))
    sides[0] = 500
    photos = [random_bytes(height, width, 3) for height, width in sides.tolist()]
    collate = pinfeed.Collate(pinfeed.Image(MEAN, STD, pad_value=0.0))

    def filled(transform):
        return peers.padded_images([*map(transform, photos)], (32, 3, 500, 500))

    def by_torchvision():
        transform = peers.to_normalized()
        return lambda: filled(transform)

    expected = filled(lambda image: normalized(image[None])[0])
    return compare(
        filling(torch.zeros(expected.shape)),
        ours("`Collate(Image(pad_value=0))`", lambda: collate(photos)),
        other(TORCHVISION, built(by_torchvision)),
        expected=expected,
        tolerance=ROUNDED,
    )
