"""Images that Image and the functions refuse, and hints that make batches of them."""

import numpy as np
import PIL.Image
import pytest
import torch

import pinfeed
from hints import COLOUR, PHOTOS, PLANES, check_hint, loaded
from pinfeed import ArrayDataset, Collate, Image

TALL = np.random.default_rng(1).integers(0, 256, (3, 3, 64, 64), np.uint8)  # (C, H, W)
EXPECTED = Collate(Image(input="CHW"))(list(TALL))
DARK_FIRST = [PHOTOS[0] * np.float32(most) for most in (0, 12 / 255, 1)]
FLOATS = [torch.from_numpy(planes / np.float32(255)) for planes in PLANES]
GREY = PIL.Image.fromarray(PHOTOS[0]).convert("L")


HINTS = {
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
    "normalized twice": (
        lambda: loaded(Collate(Image(0.5)), Image(0.5)),
        TypeError,
        "to the DataLoader's collate_fn alone, and leave it out of fields",
        lambda: loaded(Collate(Image(0.5)), None),
        Collate(Image(0.5))(list(PHOTOS)),
    ),
    "a list of arrays to normalize": (
        lambda: pinfeed.normalize(list(PHOTOS)),
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
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


def test_four_rows_of_many_channels_are_said_to_be_so():
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 8), np.uint8)
    assert Collate(Image(input="HWC"))([image]).shape == (1, 8, 4, 5)
    assert repr(Image(input="HWC")) == "Image(input='HWC')"
