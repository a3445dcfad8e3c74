"""What fields refuse rather than make wrong batches of, and hints: whoever follows one is right."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import pinfeed
from pinfeed import ArrayDataset, Collate, Image, Jagged, Keep, Pack, Pad, Stack, augment
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


def loaded(collate: Any, fields: Any) -> Any:
    loader = DataLoader(list(PHOTOS), len(PHOTOS), collate_fn=collate)
    return next(iter(pinfeed.DeviceLoader(loader, "cpu", fields=fields)))


def packed(fields: Any) -> Any:
    tokens = pinfeed.RaggedArray.from_sequences([[1, 2, 3], [4]])
    dataset = ArrayDataset({"input_ids": tokens, "labels": tokens})
    sampler = pinfeed.PackSampler(tokens, 4, shuffle=False)
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
        lambda: Collate()([np.zeros(2), None]),
        TypeError,
        r"sample 1: .*NoneType; Keep\(\)",
        lambda: len(Collate(Keep())([np.zeros(2), None])),
        2,
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
            r"^Collate: spec\['labels'\]: Pad\(value=-100\) makes a row of each document, and "
            r"Collate: spec\['input_ids'\] packs several into one; give this leaf a Pack too"
        ),
        lambda: packed({"input_ids": Pack(4), "labels": Pack(4, fill=-100)})["labels"],
        torch.tensor([[1, 2, 3, 4]]),
    ),
    "floats of 0..255": (
        lambda: Collate(Image([0.4] * 3, 0.25))([PHOTOS[0].astype(np.float32)]),
        ValueError,
        "of sample 0: expected values of 0..1, as mean and std of floats are for, got .* scale=1/255",
        lambda: Collate(Image([0.4] * 3, 0.25, scale=1 / 255))([PHOTOS[0].astype(np.float32)]),
        Collate(Image([0.4] * 3, 0.25))([PHOTOS[0]]),
    ),
    "floats of 0..255 behind a black image and a dark one": (
        lambda: Collate(Image([0.4] * 3, 0.25))(DARK_FIRST),
        ValueError,
        "of sample 2: expected values of 0..1, as mean and std of floats are for, got .* scale=1/255",
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
        r"names keys \['n'\], but is in no dict; .* \(Pad, Image: say True\)",
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


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS.keys())
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
