"""Mistakes, from the first line that people write on, and hints: whoever follows one is right.

And what fields refuse rather than make wrong batches of.
"""

from __future__ import annotations

import glob
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pyarrow
import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from torchvision.transforms import v2

import pinfeed
from pinfeed import (
    ArrayDataset,
    Collate,
    ConcatArray,
    Image,
    IndexedDataset,
    Jagged,
    Keep,
    Pack,
    PackSampler,
    Pad,
    RaggedArray,
    Stack,
    augment,
    from_numpy,
)
from samples import assert_same

RNG = np.random.default_rng(0)
PHOTOS = RNG.integers(0, 256, (3, 8, 6, 3), np.uint8)
PLANES = np.ascontiguousarray(PHOTOS.transpose(0, 3, 1, 2))
TALL = np.ascontiguousarray(RNG.integers(0, 256, (3, 3, 64, 64), np.uint8))  # (C, H, W)
DARK_FIRST = [PHOTOS[0] * np.float32(most) for most in (0, 12 / 255, 1)]
FLOATS = [torch.from_numpy(planes / np.float32(255)) for planes in PLANES]
GREY = PIL.Image.fromarray(PHOTOS[0]).convert("L")
COLOUR = PIL.Image.fromarray(PHOTOS[1])
EXPECTED = Collate(Image(input="CHW"))(list(TALL))
LABELS = np.array([2, 0, 1])
FRAME = pd.DataFrame({"x": [0.5, 1.5], "y": [1, 2]})
DETECTIONS = [
    {"boxes": torch.zeros(count, 4), "scores": torch.full((count,), float(count))}
    for count in (2, 1)
]
RAGGED = np.array([np.arange(2), np.arange(3)], object)


def loaded(collate: Any, fields: Any) -> Any:
    loader = DataLoader(list(PHOTOS), len(PHOTOS), collate_fn=collate)
    return next(iter(pinfeed.DeviceLoader(loader, "cpu", fields=fields)))


def rows(arrays: Any, fields: Any = None) -> Any:
    dataset = ArrayDataset(arrays)
    return Collate(fields)(dataset.__getitems__(range(len(dataset))))


def first(loader: Any) -> Any:
    return next(iter(loader))


def shown(**options: Any) -> Any:
    return Collate(Image(dtype=torch.uint8, **options))([PHOTOS[0]])


def packed(fields: Any) -> Any:
    tokens = pinfeed.RaggedArray.from_sequences([[1, 2, 3], [4]])
    dataset = ArrayDataset({"input_ids": tokens, "labels": tokens})
    sampler = pinfeed.PackSampler(tokens, seq_length=4, shuffle=False)
    return next(iter(DataLoader(dataset, batch_sampler=sampler, collate_fn=Collate(fields))))


# What is done, the error, a part of its hint, and the hint done: what it makes, and what it should.
HINTS: dict[str, tuple[Callable[[], Any], type[Exception], str, Callable[[], Any], Any]] = {
    "floats": (
        lambda: Collate(Image(input="CHW"))([planes.double() for planes in FLOATS]),
        TypeError,
        r"got float64 \(3, 8, 6\); convert with .astype\(np.float32\) or .to\(torch.float32\)",
        lambda: Collate(Image(input="CHW"))([p.double().to(torch.float32) for p in FLOATS]),
        torch.stack(FLOATS),
    ),
    "integers in a PIL image": (
        lambda: Collate(Image(input="HW"))([GREY.convert("I")]),
        TypeError,
        r"got 'I'; np.asarray\(image\).astype\(np.float32\) has its values",
        lambda: Collate(Image(input="HW"))([np.asarray(GREY.convert("I")).astype(np.float32)]),
        torch.from_numpy(np.asarray(GREY).astype(np.float32))[None, None],
    ),
    "a palette": (
        lambda: Collate(Image())([COLOUR.convert("P")]),
        TypeError,
        r"got 'P'; a mask takes dtype=torch.int64, an image \.convert\('RGB'\)",
        lambda: Collate(Image())([COLOUR.convert("P").convert("RGB")]),
        Collate(Image())([np.asarray(COLOUR.convert("P").convert("RGB"))]),
    ),
    "a mask with a palette": (
        lambda: Collate(Image(input="HW", output="HW"))([COLOUR.convert("P")]),
        TypeError,
        r"a mask takes dtype=torch.int64",
        lambda: Collate(Image(input="HW", output="HW", dtype=torch.int64))([COLOUR.convert("P")]),
        torch.from_numpy(np.asarray(COLOUR.convert("P")).astype(np.int64))[None],
    ),
    "colours as a mask": (
        lambda: Collate(Image(dtype=torch.int64))([COLOUR]),
        TypeError,
        r"got 'RGB'; colours take another dtype, such as torch.uint8",
        lambda: Collate(Image(dtype=torch.uint8))([COLOUR]),
        torch.from_numpy(np.array(COLOUR)).permute(2, 0, 1)[None],
    ),
    "classes as an image": (
        lambda: Collate(Image())(list(PHOTOS.astype(np.int64))),
        TypeError,
        r"convert with .astype\(np.uint8\) .*; masks take dtype=torch.int64",
        lambda: Collate(Image(dtype=torch.int64))(list(PHOTOS.astype(np.int64))),
        torch.from_numpy(PLANES).long(),
    ),
    "multiples without axes": (
        lambda: Collate(Pad(multiple_of=(4, 8), lengths=False))([np.ones((3, 5))]),
        ValueError,
        r"name the axes of a sample: axes=\(0, 1\)",
        lambda: Collate(Pad(axes=(0, 1), multiple_of=(4, 8), lengths=False))([np.ones((3, 5))]),
        torch.nn.functional.pad(torch.ones(1, 3, 5, dtype=torch.float64), (0, 3, 0, 1)),
    ),
    "signed bytes": (
        lambda: Collate(Image(dtype=torch.uint8))(list(PHOTOS.astype(np.int64))),
        TypeError,
        r"expected integers that uint8 can hold.*; dtype=torch.int64 holds all of them",
        lambda: Collate(Image(dtype=torch.int64))(list(PHOTOS.astype(np.int64))),
        torch.from_numpy(PLANES).long(),
    ),
    "masks of bools": (
        lambda: Collate(Image(input="HW", scale=1))([PHOTOS[0, ..., 0] > 99]),
        TypeError,
        r"got bool .*; convert with \.astype\(np.uint8\) \* 255",
        lambda: Collate(Image(input="HW"))([(PHOTOS[0, ..., 0] > 99).astype(np.uint8) * 255]),
        torch.from_numpy(PHOTOS[0, ..., 0] > 99).float()[None, None],
    ),
    "a grey array among others": (
        lambda: Collate(Image())([COLOUR, GREY]),
        ValueError,
        r'sample 1: .*\.convert\("RGB"\)',
        lambda: Collate(Image())([COLOUR, GREY.convert("RGB")]),
        Collate(Image())([np.asarray(COLOUR), np.stack([np.asarray(GREY)] * 3, -1)]),
    ),
    "a grey image first": (
        lambda: Collate(Image())([GREY, COLOUR]),
        ValueError,
        r'sample 0 .*\.convert\("RGB"\)',
        lambda: Collate(Image())([GREY.convert("RGB"), COLOUR]),
        Collate(Image())([np.stack([np.asarray(GREY)] * 3, -1), np.asarray(COLOUR)]),
    ),
    "RGBA among RGB": (
        lambda: Collate(Image(pad_value=0))([COLOUR, COLOUR.convert("RGBA")]),
        ValueError,
        r'3 channels as in sample 0.*\.convert\("RGB"\)',
        lambda: Collate(Image(pad_value=0))([COLOUR, COLOUR.convert("RGBA").convert("RGB")]),
        Collate(Image())([COLOUR, COLOUR]),
    ),
    "None": (
        lambda: Collate({"x": Stack(), "y": None})([{"x": 1, "y": None}] * 2),
        TypeError,
        r"leaf \['y'\].*Keep\(\) leaves None",
        lambda: Collate({"x": Stack(), "y": Keep()})([{"x": 1, "y": None}] * 2),
        {"x": torch.tensor([1, 1]), "y": [None, None]},
    ),
    "None among arrays": (
        lambda: Collate()([{"x": np.zeros(2)}, {"x": None}]),
        TypeError,
        r"leaf \['x'\] of sample 1: .*NoneType; Keep\(\) leaves None",
        lambda: Collate({"x": Keep()})([{"x": "a"}, {"x": None}])["x"],
        ["a", None],
    ),
    "PIL": (
        lambda: Collate()([COLOUR, COLOUR]),
        TypeError,
        r"; Image\(\) takes PIL images",
        lambda: Collate(Image())([COLOUR, COLOUR]),
        Collate(Image())([PHOTOS[1], PHOTOS[1]]),
    ),
    "constants of bytes": (
        lambda: Image((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
        ValueError,
        "scale=1",
        lambda: Collate(Image((127.5,) * 3, (63.75,) * 3, scale=1))(list(PHOTOS)),
        Collate(Image((0.5,) * 3, (0.25,) * 3))(list(PHOTOS)),
    ),
    "planes": (
        lambda: Collate(Image())(list(TALL)),
        ValueError,
        r'sample 0: .*\(3, 64, 64\).*say input="CHW"',
        lambda: Collate(Image(input="CHW"))(list(TALL)),
        EXPECTED,
    ),
    "planes with constants": (
        lambda: Collate(Image((0.5,) * 3))(list(TALL)),
        ValueError,
        'say input="CHW"',
        lambda: Collate(Image((0.5,) * 3, input="CHW"))(list(TALL)),
        EXPECTED - 0.5,
    ),
    "planes of a dataset": (
        lambda: Collate(Image())(ArrayDataset(TALL).__getitems__([2, 0])),
        ValueError,
        'say input="CHW"',
        lambda: Collate(Image(input="CHW"))(ArrayDataset(TALL).__getitems__([2, 0])),
        EXPECTED[[2, 0]],
    ),
    "planes on a device": (
        lambda: Image().apply(torch.from_numpy(TALL), None, pinfeed.Leaf("images")),
        ValueError,
        'say input="CHW"',
        lambda: Image(input="CHW").apply(torch.from_numpy(TALL), None, pinfeed.Leaf("images")),
        EXPECTED,
    ),
    "planes to normalize": (
        lambda: pinfeed.normalize(torch.from_numpy(TALL), (0.5,) * 3),
        ValueError,
        r'normalize: images: .*\(3, 3, 64, 64\), as \(N, C, H, W\) has it; say input="NCHW"',
        lambda: pinfeed.normalize(torch.from_numpy(TALL), (0.5,) * 3, input="NCHW"),
        EXPECTED - 0.5,
    ),
    "planes to normalize in a graph": (
        lambda: torch.compile(pinfeed.normalize, backend="eager")(torch.from_numpy(TALL)),
        ValueError,
        'input="NHWC" if there are 64 channels',
        lambda: pinfeed.normalize(torch.from_numpy(TALL), input="NHWC"),
        EXPECTED.permute(0, 3, 1, 2).contiguous(),
    ),
    "64 channels": (
        lambda: Collate(Image())(list(TALL)),
        ValueError,
        'input="HWC" if there are 64 channels',
        lambda: Collate(Image(input="HWC"))(list(TALL)),
        EXPECTED.permute(0, 3, 1, 2).contiguous(),
    ),
    "normalized twice": (
        lambda: loaded(Collate(Image(0.5)), Image(0.5)),
        TypeError,
        "to the DataLoader's collate_fn alone, and leave it out of fields",
        lambda: loaded(Collate(Image(0.5)), None),
        Collate(Image(0.5))(list(PHOTOS)),
    ),
    "a field for a dict": (
        lambda: Collate(Image())([{"image": PHOTOS[0]}]),
        TypeError,
        r"got dict; fields mirror the structure of samples, such as {'image': Image\(...\)}",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0]}])["image"],
        Collate(Image())([PHOTOS[0]]),
    ),
    "a field for a tuple": (
        lambda: Collate(Image())(ArrayDataset((PHOTOS, PHOTOS)).__getitems__([0])),
        TypeError,
        r"got tuple; fields mirror the structure of samples, such as \(Image\(...\), None\)",
        lambda: Collate((Image(), None))([(PHOTOS[0], 0)])[0],
        Collate(Image())([PHOTOS[0]]),
    ),
    "a field for a dict of batches": (
        lambda: loaded(lambda samples: {"image": Collate()(samples)}, Image()),
        TypeError,
        r"got dict; fields mirror the structure of batches, such as {'image': Image\(...\)}",
        lambda: loaded(lambda samples: {"image": Collate()(samples)}, {"image": Image()})["image"],
        Collate(Image())(list(PHOTOS)),
    ),
    "labels of packed tokens": (
        lambda: packed({"input_ids": Pack(4)}),
        ValueError,
        r"leaf \['labels'\] of sample 1 .*; where documents are packed, this leaf too needs Pack\(4\)",
        lambda: packed({"input_ids": Pack(4), "labels": Pack(4)})["labels"],
        torch.tensor([[1, 2, 3, 4]]),
    ),
    "padded labels of packed tokens": (
        lambda: packed({"input_ids": Pack(4), "labels": Pad(-100)}),
        ValueError,
        (
            r"^Collate: fields\['labels'\]: Pad\(pad_value=-100\) makes a row of each document, and "
            r"Collate: fields\['input_ids'\] packs several into one; give this leaf a Pack too"
        ),
        lambda: packed({"input_ids": Pack(4), "labels": Pack(4, pad_value=-100)})["labels"],
        torch.tensor([[1, 2, 3, 4]]),
    ),
    "floats of 0..255": (
        lambda: Collate(Image([0.4] * 3, 0.25))([PHOTOS[0].astype(np.float32)]),
        ValueError,
        "^Collate: sample 0: expected values of 0..1, as mean and std of floats are for, got .* scale=1/255",
        lambda: Collate(Image([0.4] * 3, 0.25, scale=1 / 255))([PHOTOS[0].astype(np.float32)]),
        Collate(Image([0.4] * 3, 0.25))([PHOTOS[0]]),
    ),
    "floats of 0..255 behind a black image and a dark one": (
        lambda: Collate(Image([0.4] * 3, 0.25))(DARK_FIRST),
        ValueError,
        "^Collate: sample 2: expected values of 0..1, as mean and std of floats are for, got .* scale=1/255",
        lambda: Collate(Image([0.4] * 3, 0.25, scale=1 / 255))(DARK_FIRST)[2:],
        Collate(Image([0.4] * 3, 0.25))([PHOTOS[0]]),
    ),
    "rows of floats of 0..255": (
        lambda: pinfeed.normalize(PHOTOS.astype(np.float16), std=0.25),
        ValueError,
        r"^normalize: images of sample 0: expected values of 0..1, .* scale=1/255",
        lambda: torch.from_numpy(
            pinfeed.normalize(PHOTOS.astype(np.float16), std=0.25, scale=1 / 255)
        ),
        torch.from_numpy(pinfeed.normalize(PHOTOS, std=0.25)),
    ),
    "planes of bytes": (
        lambda: Collate(Image(scale=1))([np.full((12, 64, 64), 3, np.uint8)]),
        ValueError,
        r"got \(12, 64, 64\), as \(C, H, W\) has it; say input=\"CHW\", or input=\"HWC\" if there are 64",
        lambda: Collate(Image(scale=1, input="CHW"))([np.full((12, 64, 64), 3, np.uint8)]),
        torch.full((1, 12, 64, 64), 3.0),
    ),
    "a crop that pads a small image to billions of pixels": (
        lambda: Collate(
            Image(augment=augment.Compose([augment.CenterCrop(2**17), augment.Resize(2)]))
        )([PHOTOS[0]]),
        ValueError,
        r"a crop to \(131072, 131072\) would pad an image of .* to more than 2\*\*26 pixels",
        lambda: (
            Collate(Image(augment=augment.Compose([augment.Resize(2), augment.CenterCrop(8)])))(
                [PHOTOS[0]]
            ).shape
        ),
        torch.Size([1, 3, 8, 8]),
    ),
    "samples in a list": (
        lambda: ArrayDataset({"image": [*PHOTOS], "label": np.arange(3)}),
        ValueError,
        r"samples in a list are np.stack\(samples\)",
        lambda: torch.from_numpy(ArrayDataset({"image": np.stack([*PHOTOS])})[0]["image"]),
        torch.from_numpy(PHOTOS[0]),
    ),
    "lists of tokens": (
        lambda: Collate()([{"ids": [0, 1]}, {"ids": [*np.arange(3)]}]),
        ValueError,
        r"got 3; Pad\(\) and Jagged\(\) take samples of different sizes",
        lambda: Collate({"ids": Jagged()})([{"ids": [0, 1]}, {"ids": [0, 1, 2]}])["ids"].values,
        torch.tensor([0, 1, 0, 1, 2]),
    ),
    "lengths": (
        lambda: Collate()([np.arange(2), np.arange(3)]),
        ValueError,
        r"Pad\(\) and Jagged\(\) take samples of different sizes",
        lambda: Collate(Jagged())([np.arange(2), np.arange(3)]).values,
        torch.tensor([0, 1, 0, 1, 2]),
    ),
    "keys without a dict": (
        lambda: Collate(Pad(lengths="n")),
        ValueError,
        r"^Collate: fields: Pad names keys \['n'\], but is in no dict; .* \(Pad, Image: say True\)",
        lambda: Collate(Pad(lengths=True))([[1, 2], [3]]).lengths,
        torch.tensor([2, 1]),
    ),
    "a number too large": (
        lambda: Collate(Stack(torch.uint8))([np.array([300])]),
        ValueError,
        "got 300; pass a wider dtype",
        lambda: Collate(Stack(torch.int64))([np.array([300])]),
        torch.tensor([[300]]),
    ),
    "text": (
        lambda: Collate(Stack(torch.float32))(["a", "b"]),
        TypeError,
        r"takes arrays or numbers, got str; Keep\(\)",
        lambda: Collate(Keep())(["a", "b"]),
        ["a", "b"],
    ),
}

# What people write first, who know torch, torchvision and pandas but not this library.
BEGINNINGS: dict[str, tuple[Callable[[], Any], type[Exception], str, Callable[[], Any], Any]] = {
    "labels in a list": (
        lambda: ArrayDataset({"image": PHOTOS, "label": [2, 0, 1]}),
        TypeError,
        r"^ArrayDataset: leaf \['label'\]: expected an array, got a list of 3 numbers; pass np.array",
        lambda: rows({"image": PHOTOS, "label": np.array([2, 0, 1])})["label"],
        torch.tensor([2, 0, 1]),
    ),
    "lists of different lengths": (
        lambda: ArrayDataset({"ids": [[1, 2], [3]]}),
        TypeError,
        "got a list of 2 lists of numbers; if they differ in length, pass RaggedArray.from_sequences",
        lambda: rows({"ids": RaggedArray.from_sequences([[1, 2], [3]])}, {"ids": Pad()})["ids"],
        torch.tensor([[1, 2], [3, 0]]),
    ),
    "lists of one length": (
        lambda: ArrayDataset([[1, 2], [3, 4]]),
        TypeError,
        r"^ArrayDataset: expected an array, got a list of 2 lists of numbers; .* else np.array\(",
        lambda: rows(np.array([[1, 2], [3, 4]])),
        torch.tensor([[1, 2], [3, 4]]),
    ),
    "images in a list": (
        lambda: ArrayDataset([PHOTOS[0], PHOTOS[1]]),
        TypeError,
        (
            r"^ArrayDataset: expected an array, .* got a list of 2 arrays; pass np.stack\(arrays\), or a "
            "tuple of arrays for the leaves of a sample"
        ),
        lambda: rows(np.stack([PHOTOS[0], PHOTOS[1]])),
        torch.from_numpy(PHOTOS[:2]),
    ),
    "columns in a list": (
        lambda: from_numpy([PHOTOS, LABELS], 3),
        TypeError,
        "got a list of 2 arrays; .* or a tuple of arrays for the leaves of a sample",
        lambda: first(from_numpy((PHOTOS, LABELS), 3, device="cpu")),
        [torch.from_numpy(PHOTOS), torch.from_numpy(LABELS)],
    ),
    "samples that are dicts": (
        lambda: ArrayDataset([{"image": PHOTOS[0], "label": 1}] * 3),
        TypeError,
        r"got a list of 3 samples; .*: DataLoader\(samples, batch_size, collate_fn=Collate\(\)\)",
        lambda: first(
            DataLoader([{"image": PHOTOS[0], "label": 1}] * 3, 3, collate_fn=Collate())  # type: ignore[arg-type]
        )["label"],
        torch.tensor([1, 1, 1]),
    ),
    "samples that are tuples": (
        lambda: from_numpy([(PHOTOS[0], 1)], 1),
        TypeError,
        r"got a list of 1 samples; .*: DataLoader\(samples, batch_size, collate_fn=Collate\(\)\)",
        lambda: first(DataLoader([(PHOTOS[0], 1)], 1, collate_fn=Collate()))[1],  # type: ignore[arg-type]
        torch.tensor([1]),
    ),
    "one label for all": (
        lambda: ArrayDataset({"image": PHOTOS, "label": 5}),
        TypeError,
        r"leaf \['label'\]: .* got int; np.full\(length, 5\) has it for each sample",
        lambda: rows({"image": PHOTOS, "label": np.full(len(PHOTOS), 5)})["label"],
        torch.tensor([5, 5, 5]),
    ),
    "draws where the batch size stood": (
        lambda: pinfeed.WeightedSampler([1, 0], 1000),  # type: ignore[misc]
        TypeError,
        "^WeightedSampler.* 3 were given; numbers are given by name: batch_size=..., num_samples=...",
        lambda: torch.tensor(
            first(pinfeed.WeightedSampler([1, 0], batch_size=2, num_samples=1000))
        ),
        torch.tensor([0, 0]),
    ),
    "an array of arrays": (
        lambda: ArrayDataset(RAGGED),
        TypeError,
        r"got ndarray; RaggedArray.from_sequences\(array\) holds arrays of different lengths",
        lambda: rows(RaggedArray.from_sequences(RAGGED), Jagged()).values,
        torch.tensor([0, 1, 0, 1, 2]),
    ),
    "an array of arrays of one shape": (
        lambda: ArrayDataset(np.array([1, "", PHOTOS[0]], object)[2:]),
        TypeError,
        r"np.stack\(array\) those of one shape",
        lambda: rows(np.stack(np.array([1, "", PHOTOS[0]], object)[2:])),
        torch.from_numpy(PHOTOS[:1]),
    ),
    "names of photographs": (
        lambda: ArrayDataset({"name": ["no.jpg"], "label": LABELS[:1]}),
        FileNotFoundError,
        r"a string is the path of a .npy file; RaggedArray.from_strings\(strings\) keeps strings",
        lambda: rows({"name": RaggedArray.from_strings(["no.jpg"]), "label": LABELS[:1]})["name"],
        ["no.jpg"],
    ),
    "a path of another file": (
        lambda: ArrayDataset(__file__),
        ValueError,
        r"is no complete .npy file.*; a string is the path of a .npy file; RaggedArray.from_strings",
        lambda: rows(RaggedArray.from_strings([__file__])),
        [__file__],
    ),
    "two arrays": (
        lambda: ArrayDataset(PHOTOS, LABELS),  # type: ignore[call-arg]
        TypeError,
        r"arrays go into one tuple or dict: ArrayDataset\(\(images, labels\)\)",
        lambda: rows((PHOTOS, LABELS)),
        [torch.from_numpy(PHOTOS), torch.from_numpy(LABELS)],
    ),
    "arrays by names": (
        lambda: ArrayDataset(image=PHOTOS),  # type: ignore[call-arg]
        TypeError,
        r"^ArrayDataset: there is no argument 'image'; arrays go into one tuple or dict",
        lambda: rows({"image": PHOTOS})["image"],
        torch.from_numpy(PHOTOS),
    ),
    "two arrays to load": (
        lambda: from_numpy(PHOTOS, LABELS),
        TypeError,
        r"dict: from_numpy\(\(images, labels\), batch_size\)",
        lambda: first(from_numpy((PHOTOS, LABELS), 3, device="cpu")),
        [torch.from_numpy(PHOTOS), torch.from_numpy(LABELS)],
    ),
    "two arrays to load, and a size": (
        lambda: from_numpy(PHOTOS, LABELS, 3),  # type: ignore[call-arg]
        TypeError,
        r"but 3 were given; arrays go into one tuple or dict: from_numpy\(\(images, labels\)",
        lambda: first(from_numpy((PHOTOS, LABELS), 3, device="cpu"))[1],
        torch.from_numpy(LABELS),
    ),
    "an option of DataLoader with a slip": (
        lambda: from_numpy(PHOTOS, 3, num_worker=0),
        TypeError,
        r"^from_numpy: there is no option 'num_worker', .*; did you mean 'num_workers'\?",
        lambda: first(from_numpy(PHOTOS, 3, device="cpu", num_workers=0)),
        torch.from_numpy(PHOTOS),
    ),
    "a frame": (
        lambda: ArrayDataset(FRAME),
        TypeError,
        r"got DataFrame; ArrayDataset.from_arrow\(table\) takes Arrow's, pyarrow.table\(frame\)",
        lambda: Collate()(ArrayDataset.from_arrow(pyarrow.table(FRAME)).__getitems__([0, 1])),
        {"x": torch.tensor([0.5, 1.5], dtype=torch.float64), "y": torch.tensor([1, 2])},
    ),
    "a frame to load": (
        lambda: from_numpy(FRAME, 2),
        TypeError,
        r"got .*DataFrame; pyarrow.table\(frame\) makes a table",
        lambda: first(from_numpy(pyarrow.table(FRAME), 2, device="cpu"))["y"],
        torch.tensor([1, 2]),
    ),
    "a column of a frame": (
        lambda: ArrayDataset({"y": FRAME["y"]}),
        TypeError,
        r"leaf \['y'\]: .* got Series; pass .to_numpy\(\) of it",
        lambda: rows({"y": FRAME["y"].to_numpy()})["y"],
        torch.tensor([1, 2]),
    ),
    "a field as the collate function": (
        lambda: first(DataLoader(list(PHOTOS), 3, collate_fn=Image())),
        TypeError,
        r"^Image: a field .* is no collate_fn by itself; .* collate_fn=Collate\(Image\(...\)\)",
        lambda: first(DataLoader(list(PHOTOS), 3, collate_fn=Collate(Image()))),
        Collate(Image())(list(PHOTOS)),
    ),
    "the class as the collate function": (
        lambda: first(DataLoader(list(PHOTOS), 3, collate_fn=Collate)),
        TypeError,
        r"create it with parentheses",
        lambda: first(DataLoader(list(PHOTOS), 3, collate_fn=Collate())),
        torch.from_numpy(PHOTOS),
    ),
    "a Collate for fields": (
        lambda: from_numpy(PHOTOS, 3, fields=Collate(Image())),
        TypeError,
        r"got Collate; pass the fields as they are, without Collate\(...\)",
        lambda: first(from_numpy(PHOTOS, 3, fields=Image(), device="cpu")),
        Collate(Image())(list(PHOTOS)),
    ),
    "a Collate for fields of a device": (
        lambda: loaded(Collate(), Collate(Image())),
        TypeError,
        r"^DeviceLoader: fields must be a Field .* without Collate\(...\)",
        lambda: loaded(Collate(), Image()),
        Collate(Image())(list(PHOTOS)),
    ),
    "fields by names": (
        lambda: Collate(image=Image()),  # type: ignore[call-arg]
        TypeError,
        r"^Collate: there is no argument 'image'; fields go into one tuple or dict",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0]}])["image"],
        Collate(Image())([PHOTOS[0]]),
    ),
    "a transform for a field": (
        lambda: Collate(augment.CenterCrop(4)),
        TypeError,
        r"got CenterCrop; Image\(augment=CenterCrop\(4\)\) makes batches of what it shows",
        lambda: Collate(Image(augment=augment.CenterCrop(4)))([PHOTOS[0]]),
        Collate(Image())([PHOTOS[0, 2:6, 1:5]]),
    ),
    "torchvision's transform for a field": (
        lambda: Collate(v2.CenterCrop(4)),
        TypeError,
        r"got CenterCrop; a function of one sample, .* is called by the dataset",
        lambda: Collate(Image(input="CHW"))([v2.CenterCrop(4)(torch.from_numpy(PLANES[0]))]),
        Collate(Image())([PHOTOS[0, 2:6, 1:5]]),
    ),
    "a dtype for a field": (
        lambda: Collate({"x": torch.float32}),
        TypeError,
        r"fields\['x'\] must be .*, got dtype; Stack\(torch.float32\)",
        lambda: Collate({"x": Stack(torch.float32)})([{"x": 1}])["x"],
        torch.tensor([1.0]),
    ),
    "a key with a slip": (
        lambda: Collate({"imge": Image()})([{"image": PHOTOS[0], "label": 1}]),
        ValueError,
        r"keys that samples have there, \['image', 'label'\], got 'imge'; did you mean 'image'\?",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0], "label": 1}])["image"],
        Collate(Image())([PHOTOS[0]]),
    ),
    "the key of another leaf with a slip": (
        lambda: Collate({"y": Stack().of("lable")})([{"label": 1}]),
        ValueError,
        r"is made of 'lable', but samples have \['label'\]; did you mean 'label'\?",
        lambda: Collate({"y": Stack().of("label")})([{"label": 1}])["y"],
        torch.tensor([1]),
    ),
    "a column with a slip": (
        lambda: ArrayDataset({"label": LABELS})["lable"],
        KeyError,
        r"expected a key of its samples, got 'lable'; did you mean 'label'\?",
        lambda: torch.from_numpy(ArrayDataset({"label": LABELS})["label"]),
        torch.from_numpy(LABELS),
    ),
    "a column of a table with a slip": (
        lambda: ArrayDataset.from_arrow(pyarrow.table({"label": LABELS}), ["lable"]),
        ValueError,
        r"no column 'lable'; it has \['label'\]; did you mean 'label'\?",
        lambda: Collate()(
            ArrayDataset.from_arrow(pyarrow.table({"label": LABELS}), ["label"]).__getitems__([1])
        ),
        {"label": torch.tensor([0])},
    ),
    "a tuple for dicts": (
        lambda: Collate((Image(), None))([{"image": PHOTOS[0], "label": 1}]),
        ValueError,
        r"expected a dict as samples have there, got a tuple; fields must mirror the structure of samples",
        lambda: Collate({"image": Image()})([{"image": PHOTOS[0], "label": 1}])["label"],
        torch.tensor([1]),
    ),
    "a field too few": (
        lambda: Collate((Image(),))([(PHOTOS[0], 1)]),
        ValueError,
        r"expected 2 entries, as samples have there, got 1; .*; None is for what needs no field",
        lambda: Collate((Image(), None))([(PHOTOS[0], 1)])[1],
        torch.tensor([1]),
    ),
    "an option with a slip": (
        lambda: Image(means=0.5),  # type: ignore[call-arg]
        TypeError,
        r"^Image: there is no argument 'means'; did you mean 'mean'\?",
        lambda: Collate(Image(mean=0.5))([PHOTOS[0]]),
        torch.from_numpy(PLANES[:1] / np.float32(255) - np.float32(0.5)),
    ),
    "the rows of a PackSampler": (
        lambda: PackSampler([3, 1], seq_length=4, rows=1),  # type: ignore[call-arg]
        TypeError,
        "^PackSampler: there is no argument 'rows'; it is batch_size$",
        lambda: torch.tensor(first(PackSampler([3, 1], seq_length=4, batch_size=1, shuffle=False))),
        torch.tensor([0, 1]),
    ),
    "the fill of a Pack": (
        lambda: Pack(4, fill=-100),  # type: ignore[call-arg]
        TypeError,
        "^Pack: there is no argument 'fill'; it is pad_value$",
        lambda: first(
            DataLoader(
                IndexedDataset([[1, 2]]),
                batch_sampler=PackSampler([2], seq_length=4),
                collate_fn=Collate(Pack(4, pad_value=-100)),
            )
        ),
        torch.tensor([[1, 2, -100, -100]]),
    ),
    "an option of a sampler with a slip": (
        lambda: pinfeed.ShuffleSampler(2, 2, shufle=False),  # type: ignore[call-arg]
        TypeError,
        r"^ShuffleSampler: there is no argument 'shufle'; did you mean 'shuffle'\?$",
        lambda: torch.tensor(first(pinfeed.ShuffleSampler(2, 2, shuffle=False))),
        torch.tensor([0, 1]),
    ),
    "an option of a flip with a slip": (
        lambda: augment.RandomHorizontalFlip(prob=1),  # type: ignore[call-arg]
        TypeError,
        "^RandomHorizontalFlip: there is no argument 'prob'",
        lambda: shown(augment=augment.RandomHorizontalFlip(p=1)),
        torch.from_numpy(PLANES[:1]).flip(-1),
    ),
    "transforms without a list": (
        lambda: augment.Compose(augment.CenterCrop(4), augment.CenterCrop(2)),  # type: ignore[call-arg]
        TypeError,
        r"^Compose.* 3 were given; transforms go into one list: Compose\(\[a, b\]\)$",
        lambda: shown(augment=augment.Compose([augment.CenterCrop(4), augment.CenterCrop(2)])),
        torch.from_numpy(PLANES[:1, :, 3:5, 2:4]),
    ),
    "an option of a function with a slip": (
        lambda: pinfeed.to_numpy([torch.arange(3)], max_sample=2),
        TypeError,
        r"^to_numpy: there is no argument 'max_sample'; did you mean 'max_samples'\?$",
        lambda: torch.from_numpy(pinfeed.to_numpy([torch.arange(3)], max_samples=2)),
        torch.tensor([0, 1]),
    ),
    "a function that opens shards": (
        lambda: pinfeed.StreamDataset([2, 3], open=range),  # type: ignore[call-arg]
        TypeError,
        "^StreamDataset: there is no argument 'open'; it is open_shard$",
        lambda: Collate()(list(pinfeed.StreamDataset([2, 3], open_shard=range))),
        torch.tensor([0, 1, 0, 1, 2]),
    ),
    "padding of a function": (
        lambda: pinfeed.pad([[1, 2], [3]], padding_value=7),
        TypeError,
        "^pad: there is no argument 'padding_value'; it is pad_value$",
        lambda: pinfeed.pad([[1, 2], [3]], pad_value=7, lengths=False),
        torch.tensor([[1, 2], [3, 7]]),
    ),
    "the class of a transform": (
        lambda: Image(augment=augment.RandomHorizontalFlip),  # type: ignore[arg-type]
        TypeError,
        r"got a class; create it with parentheses: RandomHorizontalFlip\(...\)$",
        lambda: shown(augment=augment.RandomHorizontalFlip()).sort(-1)[0],
        torch.from_numpy(PLANES[:1]).sort(-1)[0],
    ),
    "the name of torch's dtype": (
        lambda: Stack("torch.float16"),
        TypeError,
        r"got 'torch.float16'; say 'float16'$",
        lambda: Collate(Stack("float16"))([1.5]),
        torch.tensor([1.5], dtype=torch.float16),
    ),
    "one-hot labels": (
        lambda: pinfeed.BalancedSampler(np.eye(2), batch_size=2),
        ValueError,
        r"^BalancedSampler: labels must be 1-D, got shape \(2, 2\); .argmax\(1\) makes labels",
        lambda: torch.tensor(first(pinfeed.BalancedSampler(np.eye(2).argmax(1), batch_size=2))),
        torch.tensor(first(pinfeed.BalancedSampler([0, 1], batch_size=2))),
    ),
    "an option of pad_sequence": (
        lambda: Pad(padding_value=7),  # type: ignore[call-arg]
        TypeError,
        "^Pad: there is no argument 'padding_value'; it is pad_value$",
        lambda: Collate({"x": Pad(pad_value=7)})([{"x": [1, 2]}, {"x": [3]}])["x"],
        torch.tensor([[1, 2], [3, 7]]),
    ),
    "a size of images": (
        lambda: Image(size=4),  # type: ignore[call-arg]
        TypeError,
        r"there is no argument 'size'; Image\(augment=pinfeed.augment.Resize\(size\)\) resizes",
        lambda: shown(augment=augment.Resize((4, 4))),
        v2.Resize((4, 4))(torch.from_numpy(PLANES[:1])),
    ),
    "an interpolation of a resize": (
        lambda: augment.Resize((4, 4), v2.InterpolationMode.NEAREST),  # type: ignore[misc]
        TypeError,
        r"were given; interpolation is an argument of Image: Image\(augment=..., interpolation=",
        lambda: shown(augment=augment.Resize((4, 4)), interpolation="nearest"),
        v2.Resize((4, 4), v2.InterpolationMode.NEAREST)(torch.from_numpy(PLANES[:1])),
    ),
    "an antialiased resize": (
        lambda: augment.RandomResizedCrop(4, antialias=True),  # type: ignore[call-arg]
        TypeError,
        r"^RandomResizedCrop: there is no argument 'antialias'; resizing is antialiased",
        lambda: shown(augment=augment.Resize((4, 4))),
        v2.Resize((4, 4), antialias=True)(torch.from_numpy(PLANES[:1])),
    ),
    "saturation": (
        lambda: augment.ColorJitter(0, 0, 0.4),  # type: ignore[call-arg]
        TypeError,
        "saturation and hue are left out: call torchvision's ColorJitter in the dataset for them",
        lambda: Collate(Image(input="CHW", dtype=torch.uint8))(
            [v2.ColorJitter(saturation=(0, 0))(torch.from_numpy(PLANES[0]))]
        ),
        v2.functional.rgb_to_grayscale(torch.from_numpy(PLANES[:1]), num_output_channels=3),
    ),
    "a list of transforms": (
        lambda: Image(augment=[augment.CenterCrop(4)]),  # type: ignore[arg-type]
        TypeError,
        r"augment must be of pinfeed.augment, several in Compose\(\[...\]\), got list",
        lambda: shown(augment=augment.Compose([augment.CenterCrop(4)])),
        torch.from_numpy(PLANES[:1, :, 2:6, 1:5]),
    ),
    "a transform to normalize": (
        lambda: augment.Normalize(0.5, 0.5),  # type: ignore[attr-defined]
        AttributeError,
        r"no Normalize; pinfeed.Image\(mean, std\) makes normalized floats of images",
        lambda: Collate(Image(0.5, 0.5))([PHOTOS[0]]),
        torch.from_numpy(PLANES[:1] / np.float32(255) * 2 - 1),
    ),
    "None for a sample": (
        lambda: Collate()([{"x": 1}, None]),
        ValueError,
        (
            "^Collate: sample 1: expected a dict as in sample 0, got NoneType; leave out samples that are "
            r"None: collate_fn=lambda samples: collate\(\["
        ),
        lambda: Collate()([sample for sample in ({"x": 1}, None) if sample is not None])["x"],
        torch.tensor([1]),
    ),
    "None for an image": (
        lambda: Collate()([PHOTOS[0], None]),
        TypeError,
        r"^Collate: sample 1: .*None.*; leave out samples that are None",
        lambda: Collate()([sample for sample in (PHOTOS[0], None) if sample is not None]),
        torch.from_numpy(PHOTOS[:1]),
    ),
    "None for a number": (
        lambda: Collate()([{"x": 1}, {"x": None}]),
        TypeError,
        r"^Collate: leaf \['x'\] of sample 1: expected int as in sample 0, got None; Keep\(\) leaves",
        lambda: Collate({"x": Keep()})([{"x": 1}, {"x": None}])["x"],
        [1, None],
    ),
    "a missing key": (
        lambda: Collate()([{"x": 1, "y": 2}, {"x": 1}]),
        ValueError,
        r"^Collate: sample 1: expected keys \['x', 'y'\] as in sample 0, got \['x'\]; it has no 'y'",
        lambda: Collate()([{"x": 1, "y": 2}, {"x": 1, "y": 3}])["y"],
        torch.tensor([2, 3]),
    ),
    "Pack without its sampler": (
        lambda: Collate(Pack(4))([[1, 2, 3], [4]]),
        ValueError,
        (
            r"Pack needs the rows that a PackSampler has planned: DataLoader\(dataset, batch_sampler="
            r"PackSampler\(lengths, seq_length=4\), ...\); any dataset but an ArrayDataset needs IndexedDataset"
        ),
        lambda: first(
            DataLoader(
                IndexedDataset([[1, 2, 3], [4]]),
                batch_sampler=PackSampler([3, 1], seq_length=4, shuffle=False),
                collate_fn=Collate(Pack(4)),
            )
        ),
        torch.tensor([[1, 2, 3, 4]]),
    ),
    "a seed without indices": (
        lambda: Collate(Image(augment=augment.RandomCrop(4)), seed=0)(list(PHOTOS)),
        ValueError,
        r"seed=0 needs the index of each sample; wrap the dataset: DataLoader\(pinfeed.IndexedDataset",
        lambda: first(
            DataLoader(
                IndexedDataset(list(PHOTOS)),
                3,
                collate_fn=Collate(Image(augment=augment.RandomCrop(4)), seed=0),
            )
        ),
        Collate(Image(augment=augment.RandomCrop(4)), seed=0)(
            ArrayDataset(PHOTOS).__getitems__([0, 1, 2])
        ),
    ),
    "what a detector returns": (
        lambda: pinfeed.to_numpy([DETECTIONS]),
        ValueError,
        (
            r"for a list with a dict for each sample, yield Collate\({'boxes': Jagged\(\), 'scores': Jagged"
            r"\(\)}\)\(outputs\)"
        ),
        lambda: [
            torch.from_numpy(scores)
            for scores in pinfeed.to_numpy(
                [Collate({"boxes": Jagged(), "scores": Jagged()})(DETECTIONS)]
            )["scores"]
        ],
        [torch.full((2,), 2.0), torch.full((1,), 1.0)],
    ),
    "a list of arrays to normalize": (
        lambda: pinfeed.normalize(list(PHOTOS)),  # type: ignore[call-overload]
        TypeError,
        r"got list; np.stack\(...\) makes one of a list of arrays",
        lambda: torch.from_numpy(pinfeed.normalize(np.stack(list(PHOTOS)))),
        Collate(Image())(list(PHOTOS)),
    ),
    "an image of PIL to gather from": (
        lambda: pinfeed.gather(COLOUR, [1]),
        TypeError,
        r"got Image; np.asarray\(...\) makes one of it",
        lambda: torch.from_numpy(pinfeed.gather(np.asarray(COLOUR), [1])),
        torch.from_numpy(PHOTOS[1, 1:2]),
    ),
    "lists for a RaggedArray": (
        lambda: RaggedArray([[1, 2], [3]]),  # type: ignore[call-arg]
        TypeError,
        "'offsets'; RaggedArray.from_sequences makes one of lists and arrays",
        lambda: rows(RaggedArray.from_sequences([[1, 2], [3]]), Jagged()).values,
        torch.tensor([1, 2, 3]),
    ),
    "dates": (
        lambda: ArrayDataset(np.array(["1970-01-03"], "M8[D]")),
        TypeError,
        r"got datetime64\[D\]; .view\(np.int64\) has its numbers",
        lambda: rows(np.array(["1970-01-03"], "M8[D]").view(np.int64)),
        torch.tensor([2]),
    ),
    "numbers to pad": (
        lambda: Collate({"x": Pad()})([{"x": 1}, {"x": 2}]),
        TypeError,
        "got int; single numbers need no field: leave it out",
        lambda: Collate({})([{"x": 1}, {"x": 2}])["x"],
        torch.tensor([1, 2]),
    ),
    "names of photographs to load": (
        lambda: from_numpy(["a.jpg"], 1),
        TypeError,
        r"list of 1 paths; .* a Dataset: DataLoader\(dataset, batch_size, collate_fn=Collate\(Image",
        lambda: first(DataLoader([COLOUR], 1, collate_fn=Collate(Image()))),  # type: ignore[arg-type]
        Collate(Image())([PHOTOS[1]]),
    ),
    "a stream to shuffle": (
        lambda: pinfeed.StreamDataset(range(9), shuffle=True),  # type: ignore[call-arg]
        TypeError,
        "^StreamDataset: there is no argument 'shuffle'; shuffle_buffer=10_000 shuffles",
        lambda: Collate()(sorted(pinfeed.StreamDataset(range(9), shuffle_buffer=10_000))),
        torch.arange(9),
    ),
    "a key twice": (
        lambda: Collate({"x": Pad(0, mask="m"), "m": Pad(0)}),
        ValueError,
        "has two fields for the key 'm'; leave one out, or choose another name",
        lambda: Collate({"x": Pad(0, mask="m")})([{"x": [1, 2]}, {"x": [3]}])["m"],
        torch.tensor([[True, True], [True, False]]),
    ),
    "more classes than there are": (
        lambda: augment.mixup(torch.zeros(2, 3, 4, 4), torch.tensor([0, 3]), num_classes=3),
        ValueError,
        r"^mixup: labels must be from 0 to num_classes - 1, which is 2, got 0 to 3",
        lambda: augment.mixup(torch.zeros(2, 3, 4, 4), torch.tensor([0, 3]), num_classes=4)[
            1
        ].sum(),
        torch.tensor(2.0),
    ),
}


@pytest.mark.parametrize("hint", [*BEGINNINGS.values(), *HINTS.values()], ids=[*BEGINNINGS, *HINTS])
def test_hints(hint: Any) -> None:
    wrong, error, message, right, expected = hint
    with pytest.raises(error, match=message):
        wrong()
    found = right()
    if isinstance(expected, torch.Tensor) and expected.is_floating_point():
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    else:
        assert_same(found, expected)


def test_four_rows_of_many_channels_are_said_to_be_so() -> None:
    image = RNG.integers(0, 256, (4, 5, 8), np.uint8)
    assert Collate(Image(input="HWC"))([image]).shape == (1, 8, 4, 5)
    assert repr(Image(input="HWC")) == "Image(input='HWC')"


# A number that fits and one that doesn't: dtypes of samples and of the batch.
MISFITS = [
    (np.int64, torch.uint8, 255, 256),
    (np.int64, torch.uint8, 0, -1),
    (np.int64, torch.int32, -(2**31), 2**40),
    (np.int64, torch.int16, -(2**15), 70000),
    (np.int8, torch.uint8, 127, -1),
    (np.int8, torch.uint64, 127, -1),
    (np.uint8, torch.int8, 127, 200),
    (np.uint16, torch.int8, 127, 65480),
    (np.uint64, torch.int64, 2**63 - 1, 2**63),
    (np.int32, torch.uint16, 65535, 65536),
]
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "Stack": lambda samples, dtype: Collate(Stack(dtype))(list(samples)),
    "Stack of rows": lambda samples, dtype: Collate(Stack(dtype))(
        ArrayDataset(samples).__getitems__(range(len(samples)))
    ),
    "Stack of strided rows": lambda samples, dtype: Collate(Stack(dtype))(
        ArrayDataset(np.repeat(samples, 2, -1)[..., ::2]).__getitems__(range(len(samples)))
    ),
    "Pad": lambda samples, dtype: Collate(Pad(dtype=dtype, lengths=False))(list(samples)),
    "Jagged": lambda samples, dtype: Collate(Jagged(dtype))(list(samples)).values,
    "pad": lambda samples, dtype: pinfeed.pad(
        [torch.from_numpy(sample) for sample in samples], dtype=dtype, lengths=False
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(("own", "dtype", "fits", "wrong"), MISFITS)
@pytest.mark.parametrize("place", [0, 37, 99])
def test_integers_that_do_not_fit(
    own: Any, dtype: Any, fits: int, wrong: int, place: int, way: Any
) -> None:
    samples = np.ones((3, 100), own)
    samples[:, place] = fits
    assert_same(way(samples, dtype).reshape(3, 100), torch.from_numpy(samples).to(dtype))
    samples[2, place] = wrong
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=rf"sample 2.*integers that {name} can hold, got {wrong}"):
        way(samples, dtype)


def test_integers_of_a_subclass_that_do_not_fit() -> None:
    class Mask(torch.Tensor):
        pass

    fits = [torch.tensor([number]).as_subclass(Mask) for number in (3, 255)]
    assert type(Collate(Stack(torch.uint8))(fits)) is Mask
    with pytest.raises(ValueError, match="sample 1: expected integers that uint8 can hold"):
        Collate(Stack(torch.uint8))([fits[0], fits[1] + 45])


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(
        ValueError, match="sample 1: expected integers that uint8 can hold, got 300"
    ):
        Collate(Stack(torch.uint8))([3, 300])
    with pytest.raises(ValueError, match="sample 1: expected integers that int16 can hold"):
        Collate(Stack(torch.int16))([[3, 4], [3, 70000]])
    assert_same(
        Stack(torch.uint8).apply(torch.tensor(255), None, pinfeed.Leaf("x")),
        torch.tensor(255).byte(),
    )
    with pytest.raises(ValueError, match=r"x.*: expected integers that uint8 can hold, got 300"):
        Stack(torch.uint8).apply(torch.tensor(300), None, pinfeed.Leaf("x"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_lists_of_numbers_are_arrays_to_stack(dtype: Any) -> None:
    samples = [[1, 2, 3], [4, 5, 6]]
    assert_same(Collate(Stack(dtype))(samples), torch.tensor(samples, dtype=dtype))
    assert_same(Collate()(samples), default_collate(samples))
    with pytest.raises(ValueError, match=r"sample 1: expected shape \(3,\)"):
        Collate(Stack(dtype))([[1, 2, 3], [4]])


def test_a_sample_of_rows_is_told_with_its_index() -> None:
    tokens = pinfeed.RaggedArray.from_sequences([[1], [2], [3, 4], [5]])
    rows = ArrayDataset({"x": tokens}).__getitems__([3, 0, 2])
    with pytest.raises(ValueError, match=r"leaf \['x'\] of sample 2 of the batch \(index 2\): "):
        Collate()(rows)
    rows = ArrayDataset({"x": np.array([1, 5, 300, 7])}).__getitems__([1, 2])
    with pytest.raises(
        ValueError, match=r"of sample 1 of the batch \(index 2\): .*got 300"
    ) as caught:
        Collate({"x": Stack(torch.uint8)})(rows)
    (problem,) = caught.value.args
    assert vars(problem) == {
        "subject": "Collate: leaf ['x']",
        "sample": 1,
        "part": None,
        "index": 2,
        "expected": "integers that uint8 can hold",
        "got": "300",
        "hint": "pass a wider dtype",
    }
    again = pickle.loads(pickle.dumps(caught.value))
    assert repr(again) == repr(caught.value) == f"ValueError({str(caught.value)!r})"


def test_files_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ConcatArray: part 0 \(a-0.npy\): No such file"):
        ConcatArray(["a-0.npy"])
    with pytest.raises(
        FileNotFoundError, match=r"RaggedArray.open: a is no directory that .*save w"
    ):
        RaggedArray.open("a")
    RaggedArray.from_sequences([[1], [2, 3]]).save("a")
    assert RaggedArray.open("a")[1].tolist() == [2, 3]
    for part in (0, 1):
        np.save(f"a-{part}.npy", LABELS + part)
    with pytest.raises(TypeError, match=r"got one str; sorted\(glob.glob\('a-\*.npy'\)\) has"):
        ConcatArray("a-*.npy")
    files = ConcatArray(sorted(glob.glob("a-*.npy")))
    assert np.asarray(files).tolist() == [*LABELS, *LABELS + 1]
