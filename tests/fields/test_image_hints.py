"""Images that Image and the functions reject, and working hints."""

import io
import re

import numpy as np
import PIL.Image
import pytest
import torch
from torchvision.transforms import InterpolationMode

import pinfeed
from hints import COLOR, PHOTOS, PLANES, Hints, by, check_hint, loaded, of
from pinfeed import ArrayDataset, Collate, Image, Patches
from pinfeed.functional import normalization

TALL = np.random.default_rng(1).integers(0, 256, (3, 3, 64, 64), np.uint8)  # (C, H, W)
EXPECTED = Collate(Image(input="CHW"))(list(TALL))
DARK_FIRST = [PHOTOS[0] * np.float32(most) for most in (0, 12 / 255, 1)]
FLOATS = [torch.from_numpy(planes / np.float32(255)) for planes in PLANES]
GRAY = PIL.Image.fromarray(PHOTOS[0]).convert("L")
THREE_GRAYS = np.stack([np.asarray(GRAY)] * 3, -1)
PALETTE, RGBA = COLOR.convert("P"), COLOR.convert("RGBA")
CLASSES, DOUBLES = list(PHOTOS.astype(np.int64)), [planes.double() for planes in FLOATS]
MASK, IS_LIGHT = {"input": "HW", "output": "HW"}, PHOTOS[0, ..., 0] > 99
CMYK = COLOR.convert("CMYK")
BITS = PIL.Image.fromarray(IS_LIGHT * np.uint8(255)).convert("1", dither=PIL.Image.Dither.NONE)
UNIT, BYTES = Image([0.4] * 3, 0.25), Image([0.4] * 3, 0.25, scale=1 / 255)
BEYOND_1 = "expected values of 0..1, the unit of mean and std for floats, got .* scale=1/255"

DEEP = PHOTOS.astype(np.uint16) * 257  # as large as values in PIL's mode "I;16"
DEEP_GRAY = np.ascontiguousarray(DEEP[1, ..., 0])
BIG_ENDIAN = PIL.Image.frombytes("I;16B", DEEP_GRAY.shape[::-1], DEEP_GRAY.astype(">u2").tobytes())
CLIP = PHOTOS[[0, 1, 2, 1]]
_FILE = io.BytesIO()
COLOR.save(_FILE, "png")
PNG = _FILE.getvalue()
CLIPS = Image(input="THWC", output="TCHW")
CLIPS_BY_CHANNEL = Image(input="CTHW", output="TCHW", pad_value=0)
TWO_CLIPS = Collate(CLIPS)([CLIP[:3], PHOTOS])

HINTS: Hints = {
    "a gray image of 16 bits among others": (by(Image()), [DEEP[0], DEEP_GRAY],
        [DEEP[0], np.stack([DEEP_GRAY] * 3, -1)],
        torch.from_numpy(np.stack([DEEP[0], np.stack([DEEP_GRAY] * 3, -1)]) / np.float32(65535)).permute(0, 3, 1, 2),
        ValueError, r"sample 1: .*; np\.stack\(\[image\] \* 3, -1\)"),
    "a channel of 16 bits among three": (by(Image()), [DEEP[0], DEEP_GRAY[..., None]],
        [DEEP[0], np.repeat(DEEP_GRAY[..., None], 3, -1)],
        torch.from_numpy(np.stack([DEEP[0], np.stack([DEEP_GRAY] * 3, -1)]) / np.float32(65535)).permute(0, 3, 1, 2),
        ValueError, r"np\.repeat\(image, 3, -1\) from one channel"),
    "16 bits of another byte order": (by(Image(input="HW")), [BIG_ENDIAN], [np.asarray(BIG_ENDIAN).astype(np.uint16)],
        torch.from_numpy(DEEP_GRAY / np.float32(65535))[None, None],
        TypeError, r"got 'I;16B'; np\.asarray\(image\)\.astype\(np\.uint16\) returns its values"),
    "clips of different length": (by(CLIPS), [CLIP, PHOTOS], [CLIP[:3], PHOTOS], TWO_CLIPS,
        ValueError, r"cut clips to the same number of frames: clip\[:3\]$"),
    "clips of different length by channel": (by(CLIPS_BY_CHANNEL), [clip.transpose(3, 0, 1, 2) for clip in (CLIP, PHOTOS)],
        [clip.transpose(3, 0, 1, 2)[:, :3] for clip in (CLIP, PHOTOS)], TWO_CLIPS,
        ValueError, r"clip\[:, :3\]$"),
    "floats": (by(Image(input="CHW")), DOUBLES, [planes.to(torch.float32) for planes in DOUBLES], torch.stack(FLOATS),
        TypeError, r"got float64 \(3, 8, 6\); convert with .astype\(np.float32\) or .to\(torch.float32\)"),
    "integers in a PIL image for patches": (by(Patches(2, input="HW")), [GRAY.convert("I")],
        [np.asarray(GRAY.convert("I")).astype(np.float32)], Collate(Patches(2, scale=1, input="HW"))([np.asarray(GRAY)]),
        TypeError, r"np.asarray\(image\).astype\(np.float32\) returns its values$"),
    "integers in a PIL image": (by(Image(input="HW")), [GRAY.convert("I")],
        [np.asarray(GRAY.convert("I")).astype(np.float32)],
        torch.from_numpy(np.asarray(GRAY).astype(np.float32))[None, None],
        TypeError, r"got 'I'; np.asarray\(image\).astype\(np.float32\) returns its values"),
    "a palette": (by(Image()), [PALETTE], [PALETTE.convert("RGB")],
        Collate(Image())([np.asarray(PALETTE.convert("RGB"))]),
        TypeError, r"got 'P'; use Mask\(\) for a mask, .* \.convert\('RGB'\) for an image"),
    "a mask with a palette": (of([PALETTE]), Image(**MASK), pinfeed.Mask(),
        torch.from_numpy(np.array(PALETTE)).long()[None],
        TypeError, r"use Mask\(\) for a mask"),
    "colors as a mask": (of([COLOR]), Image(dtype=torch.int64), Image(dtype=torch.uint8),
        torch.from_numpy(PLANES[1:2]),
        TypeError, r"got 'RGB'; .*; use Image\(\) for colors"),
    "classes as an image": (of(CLASSES), Image(), Image(dtype=torch.int64), torch.from_numpy(PLANES).long(),
        TypeError, r"convert values of 0..255 with .astype\(np.uint8\) .*; use Mask\(\) for masks"),
    "signed bytes": (of(CLASSES), Image(dtype=torch.uint8), Image(dtype=torch.int64), torch.from_numpy(PLANES).long(),
        TypeError, r"expected integers that uint8 can hold.*; values of 0..255 convert with \.astype\(np\.uint8\) .*; or pass dtype=torch.int64, which holds every value"),
    "masks of bools": (by(Image(input="HW")), [IS_LIGHT], [IS_LIGHT.astype(np.uint8) * 255],
        torch.from_numpy(IS_LIGHT).float()[None, None],
        TypeError, r"got bool .*; convert with \.astype\(np.uint8\) \* 255"),
    "masks of floats": (by(pinfeed.Mask()), [PHOTOS[0, ..., 0].astype(np.float64)], [PHOTOS[0, ..., 0].astype(np.int64)],
        torch.from_numpy(PHOTOS[:1, ..., 0]).long(),
        TypeError, r"got float64 \(8, 6\); whole numbers convert with \.astype\(np\.int64\)"),
    "bytes in floats": (by(Image(dtype=torch.uint8)), [PHOTOS[0].astype(np.float32)], [PHOTOS[0]], torch.from_numpy(PLANES[:1]),
        TypeError, r"whole numbers convert with \.astype\(np\.uint8\)"),
    "constants with axes": (lambda mean: Collate(Image(mean, 1))([PHOTOS[0]]), np.full((3, 1, 1), 0.5), np.full((3, 1, 1), 0.5).reshape(-1),
        Collate(Image([0.5] * 3, 1))([PHOTOS[0]]), ValueError, r"got shape \(3, 1, 1\); pass mean\.reshape\(-1\)$"),
    "channels_last as a number": (lambda flag: Collate(Image(channels_last=flag))([PHOTOS[0]]), 1, True, Collate(Image())([PHOTOS[0]]),
        TypeError, r"^Image: channels_last must be True or False, got 1$"),
    "planes among images": (by(Image()), [PHOTOS[0], PLANES[1]], [PHOTOS[0], np.moveaxis(PLANES[1], 0, -1)],
        Collate(Image())([*PHOTOS[:2]]),
        ValueError, r"sample 1: .*got \(3, 8, 6\); np\.moveaxis\(image, 0, -1\) turns an image of the other layout$"),
    "images among planes": (by(Image(input="CHW")), [PLANES[0], PHOTOS[1]], [PLANES[0], np.moveaxis(PHOTOS[1], -1, 0)],
        Collate(Image())([*PHOTOS[:2]]),
        ValueError, r"sample 1: .*; np\.moveaxis\(image, -1, 0\) turns an image of the other layout$"),
    "bytes among floats": (by(Image()), [FLOATS[0].numpy().transpose(1, 2, 0), PHOTOS[1]],
        [FLOATS[0].numpy().transpose(1, 2, 0), (PHOTOS[1] / 255).astype(np.float32)],
        torch.stack([FLOATS[0], Collate(Image())([PHOTOS[1]])[0]]),
        TypeError, r"sample 1: expected dtype float32 as in sample 0, got uint8; .* with \(image / 255\)\.astype\(np\.float32\)$"),
    "bytes of a file in an array": (by(Image()), [np.frombuffer(PNG, np.uint8)], [PIL.Image.open(io.BytesIO(PNG))],
        Collate(Image())([COLOR]), ValueError, r"got uint8 \(\d+,\); PIL\.Image\.open\(io\.BytesIO\(data\)\) reads"),
    "complex images": (by(Image(input="HW")), [DEEP_GRAY.astype(np.complex64)], [np.abs(DEEP_GRAY.astype(np.complex64))],
        torch.from_numpy(DEEP_GRAY.astype(np.float32))[None, None], TypeError, r"got complex64 .*; np\.abs\(image\) and np\.angle"),
    "a mask per class": (by(pinfeed.Mask()), [np.eye(5, dtype=np.uint8)[PHOTOS[0, ..., 0] % 5].transpose(2, 0, 1)],
        [np.eye(5, dtype=np.uint8)[PHOTOS[0, ..., 0] % 5].transpose(2, 0, 1).argmax(0)],
        torch.from_numpy(PHOTOS[:1, ..., 0] % 5).long(), ValueError, r"mask\.argmax\(0\) has the classes of a mask per class"),
    "a mask per object": (lambda field: Collate({"image": Image(), "masks": field})([{"image": PHOTOS[0], "masks": PHOTOS[:2, ..., 0] > 99}])["masks"].values,
        pinfeed.Mask(), pinfeed.InstanceMasks(), torch.from_numpy(PHOTOS[:2, ..., 0] > 99).byte(), ValueError, r"InstanceMasks\(\) takes a mask per object"),
    "a volume": (of([np.full((8, 64, 64), 0.5, np.float32)]), Image(), Image(input="THW", output="THW"),
        torch.full((1, 8, 64, 64), 0.5), ValueError, r'for volumes of one channel input="THW", output="THW"$'),
    "clips for patches": (of([PHOTOS]), Patches(2), Patches(2, input="THWC"), Collate(Patches(2, input="THWC"))([PHOTOS]),
        ValueError, r'for clips pass input="THWC", and output="CTHW" to Image$'),
    "a mask of floats of PIL": (by(pinfeed.Mask()), [GRAY.convert("F")], [np.asarray(GRAY.convert("F")).astype(np.int32)],
        torch.from_numpy(np.array(GRAY)).long()[None], TypeError, r"got 'F'; np\.asarray\(image\)\.astype\(np\.int32\) converts"),
    "torchvision's interpolation": (lambda kind: Image(interpolation=kind).interpolation, InterpolationMode.BICUBIC, "bicubic", "bicubic",
        ValueError, r"got <InterpolationMode.BICUBIC: 'bicubic'>; pass 'bicubic'$"),
    "a gray array among others": (by(Image()), [COLOR, GRAY], [COLOR, GRAY.convert("RGB")],
        Collate(Image())([PHOTOS[1], THREE_GRAYS]),
        ValueError, r'sample 1: .*\.convert\("RGB"\)'),
    "a gray image first": (by(Image()), [GRAY, COLOR], [GRAY.convert("RGB"), COLOR],
        Collate(Image())([THREE_GRAYS, PHOTOS[1]]),
        ValueError, r'sample 0 .*\.convert\("RGB"\)'),
    "a gray image for constants of colors": (by(UNIT), [GRAY], [GRAY.convert("RGB")], Collate(UNIT)([THREE_GRAYS]),
        ValueError, r'expected 3 channels, .*, got 1; np\.dstack\(.*\), or PIL\'s \.convert\("RGB"\), makes three'),
    "a gray array for constants of colors": (by(UNIT), [THREE_GRAYS[..., :1]], [np.dstack([THREE_GRAYS[..., :1]] * 3)],
        Collate(UNIT)([THREE_GRAYS]),
        ValueError, r"np\.dstack\(\[gray\] \* 3\), or PIL's .convert\(\"RGB\"\), makes three channels; a single number applies to all channels"),
    "a gray image of 16 bits for constants of colors": (by(UNIT), [PIL.Image.fromarray(DEEP_GRAY)], [np.dstack([PIL.Image.fromarray(DEEP_GRAY)] * 3)],
        Collate(UNIT)([np.stack([PHOTOS[1, ..., 0]] * 3, -1)]),
        ValueError, r"got 1; np\.dstack\(\[gray\] \* 3\) makes three channels; a single number"),
    "a gray image of floats for constants of colors": (by(UNIT), [PIL.Image.fromarray(FLOATS[1].numpy()[0])], [np.dstack([PIL.Image.fromarray(FLOATS[1].numpy()[0])] * 3)],
        Collate(UNIT)([np.stack([PHOTOS[1, ..., 0]] * 3, -1)]),
        ValueError, r"got 1; np\.dstack\(\[gray\] \* 3\) makes three channels; a single number"),
    "a gray image of 16 bits for patches of colors": (by(Patches(2, 0.5, [0.5] * 3, grid=False)), [PIL.Image.fromarray(DEEP_GRAY)], [np.dstack([PIL.Image.fromarray(DEEP_GRAY)] * 3)],
        Collate(Patches(2, 0.5, [0.5] * 3, grid=False))([np.stack([PHOTOS[1, ..., 0]] * 3, -1)]),
        ValueError, r"got 1; np\.dstack\(\[gray\] \* 3\) makes three channels; a single number"),
    "CMYK for constants of colors": (by(UNIT), [CMYK], [CMYK.convert("RGB")], Collate(UNIT)([np.asarray(CMYK.convert("RGB"))]),
        ValueError, r'got 4; PIL\'s \.convert\("RGB"\) converts RGBA and CMYK'),
    "RGBA of 16 bits for constants of colors": (by(UNIT), [np.dstack([DEEP[1], DEEP_GRAY])], [np.dstack([DEEP[1], DEEP_GRAY])[..., :3]],
        Collate(UNIT)([PHOTOS[1]]),
        ValueError, r"got 4; image\[\.\.\., :3\] of an RGBA array drops alpha"),
    "a gray image with alpha for constants of colors": (by(UNIT), [GRAY.convert("LA")], [GRAY.convert("LA").convert("RGB")],
        Collate(UNIT)([THREE_GRAYS]),
        ValueError, r'got 2; np\.dstack\(.*\), or PIL\'s \.convert\("RGB"\)'),
    "bits for constants of colors": (by(UNIT), [BITS], [BITS.convert("RGB")], Collate(UNIT)([np.dstack([IS_LIGHT * np.uint8(255)] * 3)]),
        TypeError, r"got '1'; use Mask\(\) for a mask, .* or \.convert\('RGB'\) for an image"),
    "bits as a gray image": (by(Image()), [BITS], [BITS.convert("L")], torch.from_numpy(IS_LIGHT)[None, None].float(),
        TypeError, r"got '1'; use Mask\(\) for a mask, \.convert\('L'\) or"),
    "RGBA among RGB": (by(Image(pad_value=0)), [COLOR, RGBA], [COLOR, RGBA.convert("RGB")],
        Collate(Image())([COLOR, COLOR]),
        ValueError, r'3 channels as in sample 0.*\.convert\("RGB"\)'),
    "PIL": (of([COLOR, COLOR]), None, Image(), Collate(Image())([PHOTOS[1], PHOTOS[1]]),
        TypeError, r"; use Image\(\) for PIL images"),
    "constants of bytes": (lambda constants: Collate(Image(*constants[:2], **constants[2]))(list(PHOTOS)),
        ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375), {}), ((127.5,) * 3, (63.75,) * 3, {"scale": 1}),
        Collate(Image((0.5,) * 3, (0.25,) * 3))(list(PHOTOS)),
        ValueError, "scale=1"),
    "planes": (of(list(TALL)), Image(), Image(input="CHW"), EXPECTED,
        ValueError, r'sample 0: .*\(3, 64, 64\).*pass input="CHW"'),
    "planes of a dataset": (of(ArrayDataset(TALL).__getitems__([2, 0])), Image(), Image(input="CHW"), EXPECTED[[2, 0]],
        ValueError, 'pass input="CHW"'),
    "planes on a device": (lambda field: field.apply(torch.from_numpy(TALL), None, pinfeed.FieldContext("images")), Image(),
        Image(input="CHW"), EXPECTED,
        ValueError, 'pass input="CHW"'),
    "planes to normalize": (lambda layout: pinfeed.functional.normalize(torch.from_numpy(TALL), (0.5,) * 3, **layout), {},
        {"input": "NCHW"}, EXPECTED - 0.5,
        ValueError, r'normalize: images: .*\(3, 3, 64, 64\), which looks like \(N, C, H, W\); pass input="NCHW"'),
    "planes to normalize in a graph": (lambda normalize: normalize(torch.from_numpy(TALL)),
        torch.compile(pinfeed.functional.normalize, backend="eager"),
        lambda images: pinfeed.functional.normalize(images, input="NHWC"), EXPECTED.permute(0, 3, 1, 2).contiguous(),
        ValueError, 'input="NHWC" if there are 64 channels'),
    "64 channels": (of(list(TALL)), Image(), Image(input="HWC"), EXPECTED.permute(0, 3, 1, 2).contiguous(),
        ValueError, 'input="HWC" if there are 64 channels'),
    "floats of 0..255": (of([PHOTOS[0].astype(np.float32)]), UNIT, BYTES, Collate(UNIT)([PHOTOS[0]]),
        ValueError, f"^Collate: sample 0: {BEYOND_1}"),
    "floats of 0..255 behind a black image and a dark one": (lambda field: Collate(field)(DARK_FIRST)[2:], UNIT, BYTES,
        Collate(UNIT)([PHOTOS[0]]),
        ValueError, f"^Collate: sample 2: {BEYOND_1}"),
    "rows of floats of 0..255": (lambda scale: torch.from_numpy(pinfeed.functional.normalize(PHOTOS.astype(np.float16), std=0.25, **scale)),
        {}, {"scale": 1 / 255}, torch.from_numpy(pinfeed.functional.normalize(PHOTOS, std=0.25)),
        ValueError, r"^normalize: images of sample 0: expected values of 0..1, .* scale=1/255"),
    "normalized twice": (lambda fields: loaded(Collate(Image(0.5)), fields), Image(0.5), None,
        Collate(Image(0.5))(list(PHOTOS)),
        TypeError, "to the DataLoader's collate_fn alone, and leave it out of fields"),
    "frames in a list": (by(CLIPS), [[*CLIP]], [np.stack([*CLIP])], Collate(CLIPS)([CLIP]),
        TypeError, r"sample 0: expected an array, a tensor or a PIL image, got a list of \d ndarray; np.stack\(frames\) makes a clip of frames$"),
    "frames of PIL in a list": (lambda given: Collate(given[0])([given[1]]), (Image(), [COLOR, COLOR]),
        (Image(input="THWC", output="CTHW"), np.stack([COLOR, COLOR])), Collate(CLIPS)([PHOTOS[[1, 1]]]).transpose(1, 2),
        TypeError, r'got a list of 2 Image; np.stack\(frames\) makes a clip of frames for Image\(input="THWC", output="CTHW"\)'),
    "no frames": (by(CLIPS), [CLIP, []], [CLIP], Collate(CLIPS)([CLIP]),
        TypeError, r"sample 1: expected .* got a list of 0; leave this sample out"),
    "images as nested lists": (by(Image()), [PHOTOS[0].tolist()], [np.array(PHOTOS[0].tolist(), np.uint8)], Collate(Image())([PHOTOS[0]]),
        TypeError, r"got a list of 8 list; np.array\(image, np.uint8\) converts nested lists"),
    "an image and its label": (of([(PHOTOS[0], 1)]), Image(), (Image(), None), [Collate(Image())([PHOTOS[0]]), torch.tensor([1])],
        TypeError, r"got a tuple of 2 int/ndarray; fields mirror the structure of samples, such as \(Image\(...\), None\)$"),
    "a list of arrays to normalize": (lambda images: torch.from_numpy(pinfeed.functional.normalize(images)), list(PHOTOS),
        np.stack(PHOTOS), Collate(Image())(list(PHOTOS)),
        TypeError, r"got list; np.stack\(...\) makes one from a list of arrays"),
    "an image of PIL to gather from": (lambda image: torch.from_numpy(pinfeed.functional.gather(image, [1])), COLOR,
        np.asarray(COLOR), torch.from_numpy(PHOTOS[1, 1:2]),
        TypeError, r"got Image; np.asarray\(...\) converts it"),
}  # fmt: skip


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_hints(hint):
    check_hint(*hint)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float64])
def test_volumes_of_other_dtypes(dtype, tmp_path):
    """Whichever conversion the hint names, values of CT volumes stay as they are."""
    scans = np.random.default_rng(0).integers(0, 4000, (2, 6, 7)).astype(dtype)
    collate = Collate(Image(input="HW", output="HW"))
    with pytest.raises(TypeError, match=r"with \.astype\(np\.float32\) or ") as caught:
        collate([*scans])
    assert "int16" not in str(caught.value).partition("; ")[2]
    assert r"files with write_array(path, images, dtype=np.float32)" in str(caught.value)
    expected = torch.from_numpy(scans.astype(np.float32))
    written = pinfeed.write_array(tmp_path / "x.npy", scans, dtype=np.float32)
    batches = [
        collate([*scans.astype(np.float32)]),
        collate([torch.from_numpy(scan.astype(np.int64)).to(torch.float32) for scan in scans]),
        collate(ArrayDataset(written).__getitems__([0, 1])),
    ]
    for batch in batches:
        assert torch.equal(batch, expected)


def test_four_rows_of_many_channels_are_reported():
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 8), np.uint8)
    assert Collate(Image(input="HWC"))([image]).shape == (1, 8, 4, 5)
    assert repr(Image(input="HWC")) == "Image(input='HWC')"


def test_a_file_with_one_image(tmp_path):
    paths = [tmp_path / f"{i}.npy" for i in range(2)]
    for path, image in zip(paths, PHOTOS, strict=False):
        np.save(path, image)
    first_rows = ArrayDataset(paths[0]).__getitems__([0, 1])
    with pytest.raises(
        ValueError, match=r"\(6, 3\); rows of .* ConcatArray\(paths, samples=True\)"
    ):
        Collate(Image())(first_rows)
    images = ArrayDataset(pinfeed.ConcatArray(paths, samples=True))
    assert torch.equal(
        Collate(Image())(images.__getitems__([0, 1])), Collate(Image())([*PHOTOS[:2]])
    )
    gray = [np.ascontiguousarray(image[..., 0]) for image in PHOTOS]
    with pytest.raises(ValueError, match='gray images pass input="HW"'):
        Collate(Image(input="HWC"))(ArrayDataset(np.stack(gray)).__getitems__([0]))


FRACTIONS = np.random.default_rng(0).uniform(0, 1, (4, 16, 16, 3)).astype(np.float32)
BYTES = (FRACTIONS * 255).astype(np.uint8)
MEAN = {"mean": (123.0, 116.0, 103.0), "std": (58.0, 57.0, 57.0), "scale": 1}
# Images, constants in another unit, words of the warning, and the constants that it suggests.
UNITS = {
    "fractions with a scale for bytes": (FRACTIONS, {"scale": 1 / 255}, "scale=0.00392 is for values of 0..255, got floats", {}),
    "half fractions": (FRACTIONS.astype(np.float16), {"scale": 1 / 255}, "scale=0.00392 is for values of 0..255, got floats", {}),
    "fractions with a mean for bytes": (FRACTIONS, MEAN, "mean and std are for values of 0..255, got floats of 0..1; leave", {"mean": 0.5}),
    "fractions with a deviation of bytes": (FRACTIONS, {"std": 58, "scale": 1}, "mean and std are for values of 0..255", {"std": 0.25}),
    "bytes with a scale for 16 bits": (BYTES, {"mean": 0.5, "scale": 1 / 65535}, "scale=1.53e-05 makes bytes black", {"mean": 0.5}),
    "floats of bytes with that scale": (FRACTIONS * 255, {"scale": 1 / 65535}, "black; pass scale=1/255", {"scale": 1 / 255}),
    "floats of 16 bits with a scale for bytes": (FRACTIONS * 65535, {"mean": 0.5, "scale": 1 / 255}, "pass scale=1/65535", {"mean": 0.5, "scale": 1 / 65535}),
    "16 bits with a scale for bytes": ((FRACTIONS * 65535).astype(np.uint16), {"scale": 1 / 255}, "; leave it out", {}),
    "bytes in 16 bits": (BYTES.astype(np.uint16), {}, "uint16 becomes 0..1 by its maximum, got values of 0..255; pass scale=1/255, or scale=1/65535 if", {"scale": 1 / 255}),
    "dark bytes in 16 bits": (BYTES.astype(np.int16), {}, "scale=1/32767 if the images are that dark", {"scale": 1 / 32767}),
    "floats of -1..1 with a mean for fractions": (FRACTIONS * 2 - 1, {"mean": 0.485, "std": 0.229}, "values of -1..1, but mean and std are for values of 0..1; pass 2 * mean - 1", {"mean": -0.03, "std": 0.458}),
    "floats of bytes with a mean for fractions": (FRACTIONS * 255, {"mean": 0.5, "std": 0.25, "scale": 1}, "mean and std are for values of 0..1, got values up to 25", {"mean": 0.5, "std": 0.25, "scale": 1 / 255}),
}  # fmt: skip
WAYS = {
    "Image": lambda images, options: Collate(Image(**options))([*images]),
    "Patches": lambda images, options: Collate(pinfeed.Patches(8, **options))([*images]),
    "tensors": lambda images, options: Collate(Image(**options))([*torch.from_numpy(images)]),
    "planes": lambda images, options: Collate(Image(input="CHW", **options))([*images.transpose(0, 3, 1, 2)]),
    "rows": lambda images, options: Collate({"x": Image(**options)})(ArrayDataset({"x": images}).__getitems__([2, 3])),
    "rows in patches": lambda images, options: Collate(pinfeed.Patches(8, **options))(ArrayDataset(images).__getitems__([1])),
    "normalize": lambda images, options: pinfeed.functional.normalize(images, **options),
    "normalize a tensor": lambda images, options: pinfeed.functional.normalize(torch.from_numpy(images), **options),
    "patchify": lambda images, options: pinfeed.functional.patchify([*images], 8, **options),
    "from_numpy": lambda images, options: list(pinfeed.from_numpy(images, 2, fields=Image(**options), device="cpu")),
}  # fmt: skip


@pytest.mark.parametrize("call", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("images", "wrong", "message", "right"), UNITS.values(), ids=UNITS)
def test_constants_in_another_unit(images, wrong, message, right, call):
    normalization._cache.clear()  # functions check constants until images fit
    with pytest.warns(UserWarning, match=re.escape(message)) as seen:
        call(images, wrong)
    assert len(seen) == 1
    call(images, right)


def test_bytes_with_a_scale_for_16_bits():
    wrong = {"scale": 1 / 65535}
    for samples in ([PIL.Image.fromarray(one) for one in BYTES], ArrayDataset(BYTES).__getitems__([1])):  # fmt: skip
        with pytest.warns(UserWarning, match="scale=1.53e-05 makes bytes black"):
            Collate(Image(**wrong))(samples)
    loader = pinfeed.DeviceLoader([torch.from_numpy(BYTES)] * 3, "cpu", fields=Image(**wrong))
    with pytest.warns(UserWarning, match="scale=1.53e-05 makes bytes black") as seen:
        assert len(list(loader)) == 3
    assert len(seen) == 1


DEPTH = np.random.default_rng(0).integers(0, 20000, (2, 16, 16, 1))
# Images with unusual constants that fit.
FITTING = {
    "KITTI's depth": (DEPTH.astype(np.uint16), {"scale": 1 / 256}),
    "millimeters": (DEPTH.astype(np.float32), {"scale": 1 / 1000}),
    "12 bits": ((FRACTIONS * 4095).astype(np.uint16), {"scale": 1 / 4095}),
    "dark 16 bits": ((FRACTIONS * 200).astype(np.uint16), {"mean": 0.5, "scale": 1 / 65535}),
    "floats of dark 16 bits": (FRACTIONS * 1023, {"scale": 1 / 65535}),
    "CT": (FRACTIONS * 4000 - 1000, {"mean": 40.0, "std": 80.0, "scale": 1}),
    "a window of CT": (FRACTIONS * 4000 - 1000, {"mean": 0.4, "std": 0.8, "scale": 1 / 500}),
    "classes": (BYTES // 26, {"scale": 1 / 65535}),
    "classes in 16 bits": (BYTES.astype(np.int16) // 26 * 28, {}),
    "bright and dark 16 bits": (BYTES.astype(np.uint16) * np.arange(1, 5, dtype=np.uint16)[:, None, None, None], {}),
    "very dark 16 bits": ((FRACTIONS * 150 + 90).astype(np.uint16), {}),
    "normalized fractions": ((FRACTIONS - 0.5) / 0.25, {"mean": 0.1, "std": 0.9, "scale": 1}),
    "bytes": (BYTES, MEAN),
    "floats of bytes": (FRACTIONS * 255, MEAN),
    "fractions": (FRACTIONS, {"mean": 0.5, "std": 0.25, "scale": 1}),
    "fractions to bytes": (FRACTIONS, {"scale": 255}),
    "a vegetation index": (FRACTIONS * 1.7 - 0.75, {"mean": 0.4, "std": 0.3}),
    "dark fractions after a subtraction": (FRACTIONS - 0.4, {"mean": 0.485, "std": 0.229}),
    "no numbers": (FRACTIONS * np.nan, {"scale": 1 / 255}),
    "no images": (FRACTIONS[:0], {"scale": 1 / 255}),
    "equal fractions": (np.ones_like(FRACTIONS), {"scale": 1 / 255}),
    "dark floats of bytes": (FRACTIONS / np.array([1, 100, 100, 100], np.float32)[:, None, None, None], {"scale": 1 / 255}),
    "fractions around 0": (FRACTIONS - 0.5, {"scale": 1 / 255}),
}  # fmt: skip


@pytest.mark.parametrize("key", FITTING)
def test_constants_that_fit(key):
    images, options = FITTING[key]
    pinfeed.functional.normalize(images, input="NHWC", **options)
    if len(images):
        Collate(Image(input="HWC", **options))([*images])


def test_a_first_batch_of_bytes_confirms_the_scale():
    collate = Collate(Image(scale=1 / 255))
    collate([*FRACTIONS * 255])
    collate([*FRACTIONS])  # a dark batch
