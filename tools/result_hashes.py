"""Prints one hash per random case of each area, to compare two builds.

Run it once with each build and compare the outputs:

    python tools/result_hashes.py > before.txt
    python tools/result_hashes.py > after.txt
    diff before.txt after.txt

A case that raises prints the type of its exception, because messages may change.
"""

import argparse
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pinfeed
from pinfeed import augment

Case = Callable[[np.random.Generator], Any]


def one_of(rng: np.random.Generator, choices: Any) -> Any:
    """Returns one of the choices."""
    return choices[int(rng.integers(len(choices)))]


def sizes(rng: np.random.Generator, most: int = 40) -> tuple[int, int]:
    """Returns a height and a width."""
    return int(rng.integers(1, most)), int(rng.integers(1, most))


def pixels(rng: np.random.Generator, height: int, width: int, channels: int = 3) -> np.ndarray:
    """Returns an image, which may be a view with other strides."""
    image = rng.integers(0, 256, (height, width, channels), np.uint8)
    return one_of(rng, [image, image[:, ::-1], np.asfortranarray(image)])


def geometry(rng: np.random.Generator) -> list[Any]:
    """Returns the steps of a geometry that ends in one size."""
    size = tuple(int(n) for n in rng.integers(3, 30, 2))
    first = [
        augment.RandomResizedCrop(size),
        augment.Resize(size),
        augment.RandomCrop(size, pad_if_needed=True),
        augment.Compose([augment.Resize(size), augment.CenterCrop(3)]),
    ]
    return [one_of(rng, first), augment.RandomHorizontalFlip(), augment.RandomVerticalFlip(0.3)]


def dtype(rng: np.random.Generator) -> torch.dtype:
    """Returns an output dtype."""
    return one_of(rng, [torch.float32, torch.float16, torch.bfloat16])


def rows(samples: list[Any]) -> list[Any]:
    """Returns samples that know their indices."""
    return pinfeed.IndexedDataset(samples).__getitems__(range(len(samples)))


def images(rng: np.random.Generator) -> Any:
    """Image, of one size, padded, and augmented."""
    channels, options = int(one_of(rng, [1, 2, 3, 3, 4, 7])), {"dtype": dtype(rng)}
    options["output"] = one_of(rng, ["CHW", "HWC"])
    mean, std = rng.random(channels).tolist(), (rng.random(channels) + 0.1).tolist()
    count, kind = int(rng.integers(1, 6)), int(rng.integers(3))
    if kind == 0:
        shape = sizes(rng)
        samples = [pixels(rng, *shape, channels) for _ in range(count)]
    elif kind == 1:
        samples = [pixels(rng, *sizes(rng), channels) for _ in range(count)]
        options |= {"pad_value": 0, "sizes": True, "mask": True, "multiple_of": 4}
    else:
        samples = [pixels(rng, *sizes(rng), channels) for _ in range(count)]
        options["augment"] = augment.Compose(geometry(rng))
    field = pinfeed.Image(mean, std, input="HWC", **options)
    return pinfeed.Collate(field, seed=int(rng.integers(100)))(rows(samples))


def pad(rng: np.random.Generator) -> Any:
    """Pad and Jagged."""
    kind = one_of(rng, [np.int64, np.int32, np.float32, np.float64, np.uint8])
    tail = one_of(rng, [(), (), (3,)])
    samples = [rng.integers(0, 99, (rng.integers(0, 30), *tail)).astype(kind) for _ in range(8)]
    options = {"side": one_of(rng, ["left", "right"]), "mask": bool(rng.integers(2))}
    options["multiple_of"] = one_of(rng, [None, 8])
    options["max_length"] = one_of(rng, [None, 10])
    options["dtype"] = one_of(rng, [None, torch.int64, torch.float32])
    if rng.integers(3) == 0:
        samples = [sample.tolist() for sample in samples]
    jagged = pinfeed.Jagged(max_length=options["max_length"], side=options["side"])
    return [
        pinfeed.Collate(pinfeed.Pad(pad_value=3, **options))(samples),
        pinfeed.Collate(jagged)(samples),
    ]


def pack(rng: np.random.Generator) -> Any:
    """PackSampler and Pack."""
    length = int(rng.integers(8, 40))
    documents = [rng.integers(0, 99, rng.integers(1, length + 1)) for _ in range(30)]
    tokens = pinfeed.RaggedArray.from_sequences(documents)
    options = {"seed": int(rng.integers(9)), "shuffle": bool(rng.integers(2))}
    sampler = pinfeed.samplers.PackSampler(tokens, batch_size=3, seq_length=length, **options)
    names = {"position_ids": "p", "document_ids": "d", "attention_mask": "a"}
    field = pinfeed.Pack(
        seq_length=length, pad_value=7, flat=bool(rng.integers(2)), cu_seqlens="c", **names
    )
    dataset = pinfeed.ArrayDataset({"x": tokens})
    collate = pinfeed.Collate({"x": field})
    return [collate(dataset.__getitems__(batch)) for batch in sampler]


def samplers(rng: np.random.Generator) -> Any:
    """Two epochs of every sampler."""
    n, batch = int(rng.integers(1, 90)), int(rng.integers(1, 9))
    world = int(rng.integers(1, 4))
    ranks = {"rank": int(rng.integers(world)), "world_size": world, "seed": int(rng.integers(99))}
    lengths = rng.integers(1, 50, n)
    instances = [
        pinfeed.samplers.ShuffleSampler(n, batch, drop_last=bool(rng.integers(2)), **ranks),
        pinfeed.samplers.WeightedSampler(lengths, batch_size=batch, **ranks),
        pinfeed.samplers.LengthBucketSampler(lengths, batch, **ranks),
        pinfeed.samplers.PackSampler(lengths, batch_size=batch, seq_length=64, **ranks),
    ]
    return [[list(map(int, batch)) for batch in sampler] for sampler in instances for _ in range(2)]


def detection(rng: np.random.Generator) -> Any:
    """An augmented image with boxes, points and masks."""
    samples = []
    for _ in range(4):
        height, width = (int(n) for n in rng.integers(8, 60, 2))
        count = int(rng.integers(0, 5))
        corners = np.sort(rng.random((count, 2, 2)), axis=1) * [width, height]
        boxes = corners.reshape(count, 4).astype(np.float32)
        points = (rng.random((count, 3, 2)) * [width, height]).astype(np.float32)
        masks = rng.integers(0, 2, (count, height, width), np.uint8)
        sample = {"image": pixels(rng, height, width), "boxes": boxes, "points": points}
        samples.append(sample | {"masks": masks, "labels": np.arange(count)})
    view = augment.Compose(geometry(rng))
    fields = {
        "image": pinfeed.Image(0.5, 0.25, input="HWC", augment=view),
        "boxes": pinfeed.Boxes(),
        "points": pinfeed.Points(),
        "masks": pinfeed.InstanceMasks(),
    }
    return pinfeed.Collate(fields, seed=int(rng.integers(99)))(rows(samples))


def patches(rng: np.random.Generator) -> Any:
    """Patches, of sizes that fit and resized."""
    side, merge = int(one_of(rng, [4, 14, 16])), int(one_of(rng, [1, 2]))
    cell = side * merge
    shapes = [(cell * int(rng.integers(1, 4)), cell * int(rng.integers(1, 4))) for _ in range(4)]
    samples = [pixels(rng, *shape) for shape in shapes]
    options = {"merge": merge, "dtype": dtype(rng), "temporal": int(one_of(rng, [1, 2]))}
    options["order"] = one_of(rng, ["CHW", "HWC"])
    if rng.integers(2):
        samples = [pixels(rng, *(cell + n for n in sizes(rng, 60))) for _ in range(4)]
        options |= {"min_pixels": cell * cell, "max_pixels": 4 * cell * cell}
    return pinfeed.Collate(pinfeed.Patches(side, 0.5, 0.25, input="HWC", **options))(samples)


AREAS: dict[str, Case] = {
    case.__name__: case for case in (images, pad, pack, samplers, detection, patches)
}


def feed(digest: Any, value: Any) -> None:
    """Adds a structure's shapes, dtypes and bytes to a digest."""
    if isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        if value.numel():
            digest.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key in value:
            digest.update(str(key).encode())
            feed(digest, value[key])
    elif isinstance(value, list | tuple):
        digest.update(b"[")
        for part in value:
            feed(digest, part)
    else:
        digest.update(repr(value).encode())


def main() -> None:
    """Prints the hashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", default=list(AREAS))
    parser.add_argument("--cases", type=int, default=2000)
    options = parser.parse_args()
    for area in options.areas:
        for seed in range(options.cases):
            digest = hashlib.sha256()
            try:
                feed(digest, AREAS[area](np.random.default_rng(seed)))
                print(area, seed, digest.hexdigest()[:16])
            except (ValueError, TypeError) as error:
                print(area, seed, type(error).__name__)


if __name__ == "__main__":
    main()
