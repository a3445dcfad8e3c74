"""Patches for vision transformers: compared with a fill, `Image` and transformers."""

import numpy as np
import torch

import pinfeed
from bench import peers
from bench.data import MEAN, STD
from bench.harness import Job, at_least, at_most, built, other, ours, reference, workload
from bench.workers import in_turns
from pinfeed import augment

PATCH, MERGE = 14, 2
RULE = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}


def cut(images, temporal):
    """Cuts (B, C, H, W) into patches, with transformers' code."""
    count, channels, height, width = images.shape
    rows, columns = height // PATCH, width // PATCH
    blocks = (rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)
    patches = images.reshape(count, channels, *blocks).permute(0, 2, 5, 3, 6, 1, 4, 7)
    patches = patches.unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, temporal, -1, -1)
    return patches.reshape(count * rows * columns, -1)


def patchified(count, side):
    """Cuts images that need no resize, two frames per patch."""
    images = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    planes = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    mean, std = (255 * torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    how = {"merge": MERGE, "temporal": 2}
    expected = cut(torch.from_numpy(pinfeed.functional.normalize(images, MEAN, STD)), 2)
    out = torch.empty_like(expected)
    tensors = torch.from_numpy(images)
    return Job(
        reference("fill the output (`out.fill_`)", lambda: out.fill_(0.5)),
        ours(
            "patchify",
            lambda: pinfeed.functional.patchify(tensors, PATCH, MEAN, STD, out=out, **how)[0],
        ),
        other("torch, as transformers", lambda: cut((planes.float() - mean) / std, 2)),
        other(
            "`normalize`, torch's permute",
            lambda: cut(pinfeed.functional.normalize(tensors, MEAN, STD), 2),
        ),
        expected=expected,
        tolerance=1e-5,
        outputs=[out],
    )


def processor():
    """transformers' processor: the same patches, one frame each."""
    peers.v2()  # torchvision, even if it was built for another torch
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    return Qwen2VLImageProcessor(image_mean=MEAN, image_std=STD, temporal_patch_size=1, **RULE)


@workload(
    at_most(1.15, why=(1.8, "not known; 1.16× on an AMD EPYC")),
    at_least(10, "torch", why=(8, "not known; met on an AMD EPYC")),
)
def patches_448():
    """16 images of 448×448, normalized and cut into patches of 14×14, two frames each."""
    return patchified(16, 448)


@workload(
    at_most(1.15, why=(1.83, "not known; 1.27× on an AMD EPYC")),
    at_least(10, "torch", why=(6.4, "not known; met on an AMD EPYC")),
)
def patches_1008():
    """4 images of 1008×1008, normalized and cut into patches of 14×14, two frames each."""
    return patchified(4, 1008)


@workload(
    at_most(
        1.1,
        of="`Image(augment=Resize)`",
        why=(1.37, "resized rows are copied into patches once more"),
    ),
    at_least(
        10, "Qwen2VLImageProcessor", why=(4, "nearly all of the time is spent resizing bytes")
    ),
)
def patches_resized():
    """16 images of 300 to 1,600 pixels a side, resized, normalized and cut, one frame each."""
    random = np.random.default_rng(0)
    images = [
        random.integers(0, 256, (*size, 3), dtype=np.uint8)
        for size in random.integers(300, 1600, (16, 2))
    ]
    field = pinfeed.Patches(PATCH, MEAN, STD, merge=MERGE, grid=False, **RULE)
    collate = pinfeed.Collate(field)
    sizes = [[PATCH * n for n in field.grid_of(*image.shape[:2])] for image in images]
    views = [
        pinfeed.Collate(
            pinfeed.Image(MEAN, STD, augment=augment.Resize(size), interpolation="bicubic")
        )
        for size in sizes
    ]

    def resized():
        return [view([image]) for view, image in zip(views, images, strict=True)]

    def processed():
        theirs = processor()
        return lambda: theirs(images, return_tensors="pt")["pixel_values"]

    expected = torch.cat([cut(batch, 1) for batch in resized()])
    out = torch.empty_like(expected)
    return Job(
        reference("fill the output (`out.fill_`)", lambda: out.fill_(0.5)),
        ours("`Patches`", lambda: collate(images)),
        ours("`Image(augment=Resize)`", resized, expected=resized()),
        other("Qwen2VLImageProcessor", built(processed), tolerance=1e-5),
        expected=expected,
    )


@workload(at_least(5, "Qwen2VLImageProcessor"))
def patches_workers():
    """64 images of 300 to 600 pixels a side in two workers, resized, normalized and cut."""
    random = np.random.default_rng(0)
    sizes = random.integers(300, 600, (64, 2))
    dataset = 4 * [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    field = pinfeed.Patches(PATCH, MEAN, STD, merge=MERGE, grid=False, **RULE)
    theirs = processor()

    def process(images):
        return theirs(images, return_tensors="pt")["pixel_values"]

    alternatives = [("`Patches`", pinfeed.Collate(field)), ("Qwen2VLImageProcessor", process)]
    return in_turns(
        [(name, dataset, alternative, 2) for name, alternative in alternatives], 64, tolerance=1e-5
    )
