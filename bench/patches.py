"""Patches for vision transformers: compared with a fill, `Image` and transformers."""

from functools import partial

import numpy as np
import torch

import pinfeed
from bench import peers
from bench.data import MEAN, STD
from bench.harness import built, compare, filling, other, ours, workload
from bench.targets import ELSEWHERE, at_least, at_most
from bench.workers import in_turns
from pinfeed import augment

PATCH, MERGE = 14, 2
RULE = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}
FIELD = pinfeed.Patches(PATCH, MEAN, STD, merge=MERGE, grid=False, **RULE)
QWEN = "Qwen2VLImageProcessor"
COPIED = "resized rows are copied into patches once more"
BYTES = "nearly all of the time is spent resizing bytes"


def cut(images, temporal):
    """Cuts (B, C, H, W) into patches, with transformers' code."""
    count, channels, height, width = images.shape
    rows, columns = height // PATCH, width // PATCH
    blocks = (rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)
    patches = images.reshape(count, channels, *blocks).permute(0, 2, 5, 3, 6, 1, 4, 7)
    patches = patches.unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, temporal, -1, -1)
    return patches.reshape(count * rows * columns, -1)


def random_images(sizes):
    """Returns images of these sizes."""
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]


def patchified(count, side):
    """Cuts images that need no resize, two frames per patch."""
    images = torch.from_numpy(np.stack(random_images([(side, side)] * count)))
    planes, (mean, std) = images.permute(peers.ORDER).contiguous(), peers.constants()
    normalize = partial(pinfeed.functional.normalize, images, MEAN, STD)
    patchify = partial(
        pinfeed.functional.patchify, images, PATCH, MEAN, STD, merge=MERGE, temporal=2
    )
    expected = cut(normalize(), 2)
    out = torch.empty_like(expected)
    return compare(
        filling(out),
        ours("patchify", lambda: patchify(out=out)[0]),
        other("torch, as transformers", lambda: cut((planes.float() - mean) / std, 2)),
        other("`normalize`, torch's permute", lambda: cut(normalize(), 2)),
        expected=expected,
        tolerance=1e-5,
        outputs=[out],
    )


def processor():
    """Returns transformers' processor: the same patches, one frame each."""
    peers.v2()  # torchvision, even if it was built for another torch
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    theirs = Qwen2VLImageProcessor(image_mean=MEAN, image_std=STD, temporal_patch_size=1, **RULE)
    return lambda images: theirs(images, return_tensors="pt")["pixel_values"]


@workload(
    at_most(1.15, why=(1.8, "not known; 1.16× on an AMD EPYC")),
    at_least(10, "torch", why=(8, ELSEWHERE)),
)
def patches_448():
    """16 images of 448×448, normalized and cut into patches of 14×14, two frames each."""
    return patchified(16, 448)


@workload(
    at_most(1.15, why=(1.83, "not known; 1.27× on an AMD EPYC")),
    at_least(10, "torch", why=(6.4, ELSEWHERE)),
)
def patches_1008():
    """4 images of 1008×1008, normalized and cut into patches of 14×14, two frames each."""
    return patchified(4, 1008)


@workload(
    at_most(1.1, of="`Image(augment=Resize)`", why=(1.37, COPIED)),
    at_least(10, QWEN, why=(4, BYTES)),
)
def patches_resized():
    """16 images of 300 to 1,600 pixels a side, resized, normalized and cut, one frame each."""
    images = random_images(np.random.default_rng(0).integers(300, 1600, (16, 2)))
    collate = pinfeed.Collate(FIELD)
    grids = [FIELD.grid_of(*image.shape[:2]) for image in images]
    sizes = [augment.Resize([PATCH * n for n in grid]) for grid in grids]
    fields = [pinfeed.Image(MEAN, STD, augment=size, interpolation="bicubic") for size in sizes]
    views = [*map(pinfeed.Collate, fields)]

    def resized():
        return [view([image]) for view, image in zip(views, images, strict=True)]

    expected = torch.cat([cut(batch, 1) for batch in resized()])
    return compare(
        filling(torch.empty_like(expected)),
        ours("`Patches`", lambda: collate(images)),
        ours("`Image(augment=Resize)`", resized, expected=resized()),
        other(QWEN, built(lambda: partial(processor(), images)), tolerance=1e-5),
        expected=expected,
    )


@workload(at_least(5, QWEN))
def patches_workers():
    """64 images of 300 to 600 pixels a side in two workers, resized, normalized and cut."""
    dataset = 4 * random_images(np.random.default_rng(0).integers(300, 600, (64, 2)))
    alternatives = ("`Patches`", pinfeed.Collate(FIELD)), (QWEN, processor())
    return in_turns([(name, dataset, f, 2) for name, f in alternatives], 64, tolerance=1e-5)
