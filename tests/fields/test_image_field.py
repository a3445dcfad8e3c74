"""Image compared with exact arithmetic: types, dtypes and sizes of images, class masks, and clips."""

import math
import re

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import interpolate

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, bits, random_array, views
from messages import check
from pinfeed import augment
from pinfeed.fields.field import EntryWithExtras

pytestmark = pytest.mark.kernels

OUTPUTS = ["CHW", "HWC"]
DTYPES = ["float32", "float16", "bfloat16", "uint8"]
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

SOURCES = ["uint8", "uint16", "int16", "float16", "bfloat16", "float32"]
FLOATS = ["float32", "float16", "bfloat16"]
INTEGERS = ["bool", "uint8", "uint16", "int16", "int32", "int64"]
VIEW = augment.Compose(
    [augment.RandomCrop((9, 12), padding=4, fill=7), augment.RandomHorizontalFlip()]
)
CLIPS = {
    "THWC": ["CTHW", "TCHW", "THWC"],
    "TCHW": ["CTHW", "THWC"],
    "CTHW": ["TCHW"],
    "THW": ["THW"],
}


def of_dtype(array, dtype):
    """Returns the array, or a tensor if NumPy lacks the dtype."""
    return torch.from_numpy(array).view(torch.bfloat16) if dtype == "bfloat16" else array


@st.composite
def image_lists(draw, dtypes):
    """Draws images of one size with various strides, their dtype and layout."""
    dtype, input = draw(st.sampled_from(dtypes)), draw(st.sampled_from(["HWC", "CHW", "HW"]))
    size = st.one_of(st.integers(1, 5), st.integers(1, 40))
    sizes = {"H": draw(size), "W": draw(size), "C": draw(st.integers(1, 5))}
    stored = "uint16" if dtype == "bfloat16" else dtype
    images = [
        draw(views([sizes[letter] for letter in input], stored, mirrored=dtype != "bfloat16"))
        for _ in range(draw(st.integers(1, 3)))
    ]
    return images, dtype, input


@given(
    image_lists(SOURCES),
    st.sampled_from(FLOATS),
    st.sampled_from(["CHW", "HWC"]),
    st.sampled_from([None, 1, 1e-3]),
    st.booleans(),
)
def test_any_images(isa, image_list, to, output, scale, channels_last):
    images, dtype, input = image_list
    channels_last = channels_last and output == "CHW"
    if "float" in dtype:
        scale = scale or 1  # or images beyond 0..1 raise
    elif "16" in dtype:
        scale = scale or 1 / np.iinfo(dtype).max  # the default, which raises for some small values
    unit = 1 if "float" in dtype or scale is None or scale * np.iinfo(dtype).max < 1.1 else 100
    channels = images[0].shape[input.index("C")] if "C" in input else 1
    constants = {"mean": [unit * (0.5 - 0.04 * c) for c in range(channels)], "std": 0.25 * unit}
    constants |= {"scale": scale}
    layouts = {"input": input, "output": output, "channels_last": channels_last}
    field = pinfeed.Image(**constants, **layouts, dtype=getattr(torch, to))
    batch = pinfeed.Collate(field)([of_dtype(image, dtype) for image in images])
    expected = reference.normalized(
        np.stack(images),
        **constants,
        source=dtype,
        dtype=to,
        input="N" + input,
        output="N" + output,
    )
    nans = np.isnan(reference.widened(expected, to))
    assert_same_bits(batch.masked_fill(torch.from_numpy(nans), 0), np.where(nans, 0, expected))
    assert np.array_equal(torch.isnan(batch).numpy(), nans)  # their payload is unspecified
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert batch.is_contiguous(memory_format=memory_format)


BYTES = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
UNITS = {
    "bytes": (BYTES, {"scale": 1}, "leave scale out", {}, 255),
    "bytes in another unit": (BYTES, {"scale": 1 / 8}, "leave scale out", {}, 255),
    "16 bits": (BYTES * np.uint16(257), {"scale": 1}, "leave scale out", {}, 65535),
    "bytes in uint16": (BYTES.astype(np.uint16), {}, "pass scale=1/255", {"scale": 1 / 255}, 255),
    "bytes in int16": (BYTES.astype(np.int16), {}, "pass scale=1/255", {"scale": 1 / 255}, 255),
    "dark ones first": (np.concatenate([BYTES[:1] // 9, BYTES]).astype(np.int16), {}, "pass scale=1/255", {"scale": 1 / 255}, 255),
}  # fmt: skip


@pytest.mark.parametrize(("images", "wrong", "hint", "right", "most"), UNITS.values(), ids=UNITS)
def test_constants_and_images_of_different_units(images, wrong, hint, right, most):
    expected = (np.transpose(images, (0, 3, 1, 2)) / most - 0.45) / 0.22
    calls = {
        "field": lambda **options: pinfeed.Collate(pinfeed.Image(0.45, 0.22, **options))(list(images)),
        "rows": lambda **options: pinfeed.Collate(pinfeed.Image(0.45, 0.22, **options))(pinfeed.ArrayDataset(images).__getitems__(range(len(images)))),
        "function": lambda **options: pinfeed.functional.normalize(images, 0.45, 0.22, **options),
        "augmented": lambda **options: pinfeed.Collate(pinfeed.Image(0.45, 0.22, augment=augment.CenterCrop((20, 30)), **options))(list(images)),
    }  # fmt: skip
    for call in calls.values():
        check(lambda call=call: call(**wrong), ValueError, hint)
        np.testing.assert_allclose(np.asarray(call(**right)), expected, atol=1e-5)
    check(
        lambda: pinfeed.functional.patchify(list(images), 10, 0.45, 0.22, **wrong), ValueError, hint
    )


DEEP = {
    "12 bits": (BYTES.astype(np.uint16) * 16, 4095),
    "10 bits": (BYTES.astype(np.uint16) * 4, 1023),
    "CT": (BYTES.astype(np.int16) * 16 - 1024, 4095),
}


@pytest.mark.parametrize("key", DEEP)
def test_images_of_10_or_12_bits(key):
    """They look like dark images of 16 bits, so they warn once."""
    images, most = DEEP[key]
    white = 65535 if images.dtype == np.uint16 else 32767
    text = f"pass scale=1/{most} for values 0..{most}; if the images are that dark, pass scale=1/{white}"
    functions = {
        "field": lambda **options: pinfeed.Collate(pinfeed.Image(0.45, 0.22, **options)),
        "function": lambda **options: lambda images: pinfeed.functional.normalize(np.stack(images), 0.45, 0.22, **options),
        "augmented": lambda **options: pinfeed.Collate(pinfeed.Image(0.45, 0.22, augment=augment.CenterCrop((20, 30)), **options)),
        "patches": lambda **options: lambda images: pinfeed.functional.patchify(images, 10, 0.45, 0.22, **options)[0],
    }  # fmt: skip
    for name, function in functions.items():
        call = function()
        with pytest.warns(UserWarning, match=re.escape(text)) as seen:
            dark = call(list(images))
        assert len(seen) == 1
        if name in ("field", "augmented"):
            call(list(images))  # warns once
        same = function(scale=1 / white)(list(images))  # both fixes are silent
        np.testing.assert_allclose(np.asarray(dark), np.asarray(same), atol=1e-5)
        function(scale=1 / most)(list(images))


def test_deliberate_units():
    dark = np.full((2, 8, 8), 90, np.uint16)
    assert pinfeed.Collate(pinfeed.Image(0.4, 0.2, input="HW"))(list(dark)).max() < -1.9
    deep = [np.full((8, 8), 200, np.uint16), np.full((8, 8), 65535, np.uint16)]
    batch = pinfeed.Collate(pinfeed.Image(0.4, 0.2, input="HW"))(deep)
    assert batch[1].unique().tolist() == pytest.approx([3])
    night = [np.full((8, 8), 200, np.uint16), np.full((8, 8), 900, np.uint16)]
    batch = pinfeed.Collate(pinfeed.Image(0.008, 0.005, input="HW"))(night)
    assert batch.mean() == pytest.approx(0.08, abs=0.01)
    own = pinfeed.Image(mean=1, std=2, scale=1, input="HW")  # integers are not fractions
    assert pinfeed.Collate(own)([np.full((8, 8), 5, np.uint8)]).unique().tolist() == [2]
    unit = pinfeed.Image(0.5, 0.25, scale=1, input="HW")
    assert pinfeed.Collate(unit)([np.ones((8, 8), np.float32)]).unique().tolist() == [2]


def test_dark_batches_of_16_bit_images_pass():
    """After values above 255, dark batches don't raise, and values of 0 and 1 are not taken for bytes."""
    deep, dark = np.full((8, 8, 1), 9000, np.int16), np.full((8, 8, 1), 200, np.int16)
    for first in (deep, -deep):
        collate = pinfeed.Collate(pinfeed.Image(mean=0.25, std=0.75 if first is deep else 0.5))
        assert collate([first]).shape == (1, 1, 8, 8)
        assert collate([dark]).max() < 0
    collate = pinfeed.Collate(pinfeed.Image(mean=0.125))
    with pytest.raises(ValueError, match="if the images are that dark, pass scale=1/32767"):
        collate([dark])
    same = pinfeed.Collate(pinfeed.Image(mean=0.125, scale=1 / 32767))([dark])
    assert torch.allclose(same, torch.full_like(same, 200 / 32767 - 0.125))
    flags = np.eye(8, dtype=np.uint8)[:, :, None]
    assert pinfeed.Collate(pinfeed.Image(0.5, 0.5, scale=1))([flags]).unique().tolist() == [-1, 1]


def test_reference_rounds_once():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(2000).astype(np.float32) * np.float32(1e3)
    third = float(np.float32(1 / 3))
    for some, scale, bias in [
        (values, third, float(np.float32(-0.7))),
        (np.float32([3]), third, -1.0),  # 2^-25, not 0, the difference of the rounded product
        (np.float32([0]), -1.0, -0.0),
        (np.float32([1]), 2.0**-149 * 3, 0.0),
        (np.float32([2]), 3e38, 0.0),
    ]:
        exact = [reference.exact_multiply_add(float(value), scale, bias) for value in some]
        assert_same_bits(reference.multiply_add(some, scale, bias), np.array(exact, np.float32))


@given(image_lists(INTEGERS), st.sampled_from(INTEGERS[1:]), st.sampled_from(["CHW", "HWC"]))
def test_any_integers(isa, image_list, to, output):
    images, dtype, input = image_list
    target = np.dtype(to)
    collate = pinfeed.Collate(pinfeed.Image(input=input, output=output, dtype=getattr(torch, to)))
    if not np.can_cast(images[0].dtype, target):
        check(lambda: collate(images), TypeError, f"integers that {to} can hold", f"got {dtype}")
        return
    batch = np.stack(images)[..., None] if input == "HW" else np.stack(images)
    axes = "NHWC" if input == "HW" else "N" + input
    expected = reference.permute(batch.astype(target), axes, "N" + output)
    assert_same_bits(collate(images), np.ascontiguousarray(expected))


@pytest.mark.parametrize("channels", [1, 3, 4, 5])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("output", ["CHW", "HWC"])
def test_crops_do_not_depend_on_the_dtype(isa, output, mode, channels):
    """uint8 crops are tested elsewhere; all dtypes can represent bytes."""
    photos = [random_array((17, 15, channels), seed=i) for i in range(12)]
    crop = augment.RandomCrop((14, 20), padding=6, fill=7, padding_mode=mode)
    view = augment.Compose([crop, augment.RandomHorizontalFlip(), augment.RandomVerticalFlip()])
    options = {"output": output, "augment": view}

    def batch(source, **more):
        samples = [torch.from_numpy(photo).to(source) for photo in photos]
        collate = pinfeed.Collate(pinfeed.Image(**options, **more), seed=0)
        return collate(pinfeed.IndexedDataset(samples).__getitems__(range(12)))

    bytes_as_they_are = batch(torch.uint8, scale=1)
    for dtype in SOURCES[1:]:
        assert torch.equal(batch(getattr(torch, dtype), scale=1), bytes_as_they_are)
    for dtype in INTEGERS[2:]:
        copied = batch(torch.uint8, dtype=getattr(torch, dtype))
        assert torch.equal(copied.float(), bytes_as_they_are)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "int64"])
@pytest.mark.parametrize("size", [(5, 9), (40, 31)], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest(dtype, size, mode):
    masks = torch.from_numpy(random_array((3, 21, 17)).astype(dtype))
    view = augment.Resize(size)
    options = {"dtype": torch.int64} if dtype == "int64" else {"scale": 1}
    field = pinfeed.Image(input="HW", output="HW", augment=view, interpolation=mode, **options)
    batch = pinfeed.Collate(field)(list(masks))
    assert torch.equal(batch.double(), interpolate(masks[:, None].double(), size, mode=mode)[:, 0])


MASKS = {
    "int64": {"input": "HW", "output": "HW", "dtype": torch.int64},
    "int32": {"input": "HW", "dtype": torch.int32},
    "int16": {"input": "HW", "output": "HW", "dtype": torch.int16},
    "uint16": {"input": "HWC", "dtype": torch.uint16},
}
MAY_BE_MASKS = {
    "bytes": {"input": "HW", "output": "HW", "dtype": torch.uint8},
    "bytes with a channel": {"input": "HW", "output": "CHW", "dtype": torch.uint8},
    "bytes of one channel": {"input": "HWC", "dtype": torch.uint8},
    "floats": {"input": "HW", "output": "HW"},
    "floats of the same value": {"input": "HW", "scale": 1},
    "clips": {"input": "THW", "output": "THW", "dtype": torch.uint8},
}
CLASSES = np.array([0, 5, 90, 200], np.uint8)[random_array((30, 40)) % 4]


def classes_of(field):
    axes = {"HW": CLASSES, "HWC": CLASSES[..., None], "THW": CLASSES[None]}
    return set(pinfeed.Collate(field)([axes[field.axes]]).unique().tolist())


MASK_OF_BYTES = pinfeed.Image(input="HW", dtype=torch.uint8, augment=augment.Resize(9))


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_masks_use_nearest_neighbor_resizing(options):
    field = pinfeed.Image(**options, augment=augment.Resize((7, 9)))
    exact = pinfeed.Image(**options, augment=augment.Resize((7, 9)), interpolation="nearest-exact")
    mask = CLASSES.reshape((30, 40, 1)[: len(field.axes)])
    batch, expected = (pinfeed.Collate(some)([mask]) for some in (field, exact))
    assert torch.equal(batch, expected)
    assert classes_of(field) <= {0, 5, 90, 200}


@pytest.mark.parametrize("options", MAY_BE_MASKS.values(), ids=MAY_BE_MASKS)
def test_possible_masks_need_an_interpolation(options):
    view = augment.Compose([augment.RandomHorizontalFlip(), augment.RandomResizedCrop(9)])
    words = 'interpolation="nearest-exact" for masks', 'interpolation="bilinear" for gray images'
    check(lambda: classes_of(pinfeed.Image(**options, augment=view)), ValueError, *words)
    exact = pinfeed.Image(**options, augment=view, interpolation="nearest-exact", mean=None)
    most = 255 if options.get("dtype") != torch.uint8 and options.get("scale") != 1 else 1
    assert {round(value * most) for value in classes_of(exact)} <= {0, 5, 90, 200}
    classes_of(pinfeed.Image(**options, augment=view, interpolation="bilinear"))
    classes_of(pinfeed.Image(**options, augment=augment.RandomCrop(9)))  # moves pixels only


@pytest.mark.parametrize("source", ["samples", "rows"])
@pytest.mark.parametrize("options", MAY_BE_MASKS.values(), ids=MAY_BE_MASKS)
def test_gray_images_need_no_interpolation(options, source):
    """One image of many values is enough; the others are dark, as in the first frames of a film."""
    shape = {"HW": (30, 40), "HWC": (30, 40, 1), "THW": (1, 30, 40)}[options["input"]]
    gray = random_array((4, *shape))
    gray[:3] //= 128
    resize = augment.Resize((7, 9))
    one, other = (
        pinfeed.Collate(pinfeed.Image(**options, augment=resize, **more))
        for more in ({}, {"interpolation": "bilinear"})
    )
    samples = list(gray) if source == "samples" else pinfeed.ArrayDataset(gray).__getitems__([2, 3])
    assert torch.equal(one(samples), other(samples))
    assert torch.equal(one(list(gray[:1])), other(list(gray[:1])))


def test_images_of_one_value_decide_nothing():
    collate = pinfeed.Collate(MASK_OF_BYTES)
    collate([np.zeros((30, 40), np.uint8)] * 2)
    words = "classes [0, 5, 90, 200]; pass interpolation="
    check(lambda: collate([CLASSES] * 2), ValueError, words)


@pytest.mark.parametrize("source", ["samples", "rows", "file", "parts"])
def test_masks_raise_before_anything_is_drawn(source, tmp_path):
    masks = random_array((3, 8, 6, 1)) // 64
    np.save(tmp_path / "masks.npy", masks)
    arrays = {
        "rows": masks,
        "file": tmp_path / "masks.npy",
        "parts": pinfeed.ConcatArray([masks[:1], masks[1:]]),
    }
    samples = list(masks)
    if source != "samples":
        samples = pinfeed.ArrayDataset(arrays[source]).__getitems__([0, 2])
    view = augment.Compose([augment.Resize((5, 5)), augment.RandomCrop(9)])
    for options, words in [
        ({}, "Collate: interpolation must be given"),
        ({"interpolation": "bilinear"}, "is too small for RandomCrop"),
    ]:
        field = pinfeed.Image(dtype=torch.uint8, augment=view, **options)
        with pytest.raises(ValueError, match=words):
            pinfeed.Collate(field)(samples)


IMAGES = {
    "colors": ({}, (8, 6, 3)),
    "colors as bytes": ({"dtype": torch.uint8, "input": "CHW"}, (3, 8, 6)),
    "normalized": ({"mean": 0.5, "input": "HW", "output": "HW"}, (8, 6)),
    "gray": ({"input": "HW"}, (8, 6)),
    "jittered": ({"augment": [augment.Resize((5, 5)), augment.ColorJitter((2, 2))], "input": "HW", "scale": 1}, (8, 6)),
}  # fmt: skip


@pytest.mark.parametrize(("options", "shape"), IMAGES.values(), ids=IMAGES)
def test_images_are_interpolated(options, shape):
    image = random_array(shape)
    actual, expected = (
        pinfeed.Collate(pinfeed.Image(**{"augment": augment.Resize((5, 5))} | options | more))(
            [image]
        )
        for more in ({}, {"interpolation": "bilinear"})
    )
    assert torch.equal(actual, expected)


# From 500 pixels to 375, centers lie between two pixels: PIL accumulates rounding errors, torch doesn't.
@pytest.mark.parametrize("size", [(4, 4), (8, 10), (224, 224), (401, 333)], ids=str)
def test_nearest_exact_equals_pil(size):
    view = augment.Resize(size)
    field = pinfeed.Mask(augment=view)
    ramp = np.arange(16, dtype=np.uint8).repeat(16).reshape(16, 16)
    for mask in (ramp, random_array((375, 500))):
        pil = PIL.Image.fromarray(mask).resize(size[::-1], PIL.Image.Resampling.NEAREST)
        assert np.array_equal(pinfeed.Collate(field)([mask])[0], np.asarray(pil))
    if size == (4, 4):
        assert pinfeed.Collate(field)([ramp])[0, :, 0].tolist() == [2, 6, 10, 14]


@pytest.mark.parametrize(
    ("input", "output"), [(one, other) for one in CLIPS for other in CLIPS[one]]
)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_clips(isa, input, output, dtype):
    sizes = {"T": 5, "H": 13, "W": 21, "C": 3}
    clips = random_array((4, *(sizes[letter] for letter in input))).astype(dtype)
    expected = reference.permute(clips, "N" + input, "N" + output).astype(np.float32)
    options = {"input": input, "output": output, "scale": 1}
    collate = pinfeed.Collate(pinfeed.Image(**options))
    assert_same_bits(collate(list(clips)), expected)
    batch = pinfeed.functional.normalize(clips, input="N" + input, output="N" + output, scale=1)
    assert_same_bits(batch, expected)
    assert_same_bits(collate(pinfeed.ArrayDataset(clips).__getitems__([0, 1, 2, 3])), expected)
    if output in ("CTHW", "TCHW"):
        last = pinfeed.Collate(pinfeed.Image(**options, channels_last=True))(list(clips))
        assert_same_bits(last, expected)
        assert last.movedim(1 + output.index("C"), -1).is_contiguous()


@pytest.mark.parametrize("resized", [False, True])
def test_all_frames_of_a_clip_get_one_crop(resized):
    frame = random_array((3, 13, 21, 3))
    clips = np.repeat(frame[:, None], 4, axis=1)
    view = augment.RandomResizedCrop((9, 12)) if resized else VIEW

    def batch(samples, **options):
        collate = pinfeed.Collate(pinfeed.Image(**options, augment=view), seed=0)
        return collate(pinfeed.ArrayDataset(samples).__getitems__([0, 1, 2]))

    images = batch(frame)
    for output, axis in (("CTHW", 2), ("TCHW", 1)):
        seen = batch(clips, input="THWC", output=output)
        assert torch.equal(seen, images.unsqueeze(axis).expand_as(seen))


# Bytes.


def image_field(dtype="float32", mean=None, std=None, **arguments):
    if dtype == "uint8":
        mean = std = None
    return pinfeed.Image(mean, std, dtype=getattr(torch, dtype), **arguments)


def images_of(*sizes, channels=3):
    return [random_array((*size, channels), seed=i) for i, size in enumerate(sizes)]


def expected_batch(images, input="HWC", output="CHW", **arguments):
    batch = np.stack([np.asarray(image) for image in images])
    return reference.images(batch, input="N" + input, output="N" + output, **arguments)


def test_images_of_different_strides_and_kinds():
    image = random_array((9, 21, 3))
    planes = np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0)
    images = [
        image,
        planes,
        np.asfortranarray(image),
        torch.from_numpy(image),
        PIL.Image.fromarray(image),
    ]
    batch = pinfeed.Collate(pinfeed.Image(MEAN, STD))(images)
    one = expected_batch([image], mean=MEAN, std=STD)
    assert_same_bits(batch, np.repeat(one, len(images), axis=0))


# Images of different sizes in one batch: padding, sizes and masks.

PAD_VALUES = {
    "float32": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 3e38, 1e-45],
    "float16": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 65504, 6e-8],
    "bfloat16": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 3e38, 1e-40],
    "uint8": [0, 1, 127.0, 255],
}


def assert_same_padding(padded, expected):
    """Asserts that values, lengths and mask of a Padded equal the reference's, bit for bit."""
    for part, expected_part in zip(padded, expected, strict=True):
        assert_same_bits(part, expected_part)
    assert padded.lengths.dtype == torch.int64
    assert padded.mask.dtype == torch.bool


@st.composite
def uneven_images(draw):
    """Draws images of any sizes and strides, and the arguments for their batch."""
    input = draw(st.sampled_from(["HWC", "CHW", "HW"]))
    channels = draw(st.integers(1, 6)) if "C" in input else 1
    size = st.one_of(st.integers(0, 5), st.integers(1, 60))
    images = []
    for _ in range(draw(st.integers(1, 5))):
        axes = {"H": draw(size), "W": draw(size), "C": channels}
        kind = draw(st.sampled_from(["ndarray", "read-only", "tensor"]))
        view = views(tuple(axes[letter] for letter in input), mirrored=kind != "tensor")
        images.append(as_kind(kind, draw(view)))
    dtype = draw(st.sampled_from(DTYPES))
    multiple = st.integers(1, 40)
    arguments = {
        "input": input,
        "output": draw(st.sampled_from(["CHW", "HWC"])),
        "dtype": dtype,
        "pad_value": draw(
            st.one_of(
                st.sampled_from(PAD_VALUES[dtype]),
                st.lists(st.sampled_from(PAD_VALUES[dtype]), min_size=channels, max_size=channels),
            )
        ),
        "multiple_of": draw(st.one_of(multiple, st.tuples(multiple, multiple))),
    }
    if dtype != "uint8":
        arguments["mean"] = [0.5 - 0.04 * c for c in range(channels)]
        arguments["std"] = draw(st.sampled_from([0.25, None]))
    return images, arguments


@given(uneven_images(), st.booleans())
def test_any_sizes(isa, image_list, channels_last):
    images, arguments = image_list
    channels_last = channels_last and arguments["output"] == "CHW"
    field = image_field(**arguments, channels_last=channels_last, sizes=True, mask=True)
    padded = pinfeed.Collate(field)(images)
    arrays = [np.asarray(image) for image in images]
    assert_same_padding(padded, reference.padded_images(arrays, **arguments))
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert padded.values.is_contiguous(memory_format=memory_format)


def test_rows_too_wide_for_the_staging_buffer():
    images = images_of((300, 2900), (140, 3001))
    batch = pinfeed.Collate(pinfeed.Image(MEAN, STD, pad_value=-1))(images)
    expected = reference.padded_images(images, -1, mean=MEAN, std=STD)[0]
    np.testing.assert_array_equal(bits(batch), bits(expected))


def test_images_without_pixels():
    field = pinfeed.Image(pad_value=0, multiple_of=8, sizes=True, mask=True)
    batch, sizes, mask = pinfeed.Collate(field)([np.zeros((0, 0, 3), np.uint8)] * 2)
    assert batch.shape == (2, 3, 0, 0)
    assert mask.shape == (2, 0, 0)
    assert sizes.tolist() == [[0, 0], [0, 0]]
    batch, sizes, mask = pinfeed.Collate(field)([np.zeros((5, 9, 0), np.uint8)])
    assert batch.shape == (1, 0, 8, 16)
    assert mask.sum() == 45


@pytest.mark.parametrize("sizes", [False, True, "size"])
@pytest.mark.parametrize("mask", [False, True, "where"])
def test_requested_outputs(sizes, mask):
    images = images_of((4, 9), (6, 3))
    expected = reference.padded_images(images, 0)
    field = pinfeed.Image(pad_value=0, sizes=sizes, mask=mask)
    assert field.extra_keys() == tuple(key for key in (sizes, mask) if isinstance(key, str))
    result = field.collate(images, pinfeed.FieldContext("images"))
    entry, extras = result if isinstance(result, EntryWithExtras) else (result, {})
    asked = (sizes is True, mask is True)
    assert isinstance(entry, pinfeed.Padded if any(asked) else torch.Tensor)
    values, *parts = entry if any(asked) else (entry, None, None)
    assert_same_bits(values, expected[0])
    for part, is_asked, expected_part in zip(parts, asked, expected[1:], strict=True):
        assert_same_bits(part, expected_part) if is_asked else None
        assert (part is not None) == is_asked
    assert extras.keys() == set(field.extra_keys())
    if sizes == "size":
        assert_same_bits(extras["size"], expected[1])
    if mask == "where":
        assert_same_bits(extras["where"], expected[2])


@pytest.mark.parametrize("pad_value", [np.float32(0.5), np.array(1)[()], torch.tensor(0.5), True])
def test_numbers_of_other_types(pad_value):
    batch = pinfeed.Collate(pinfeed.Image(pad_value=pad_value))(images_of((1, 1), (1, 2)))
    assert batch[0, 0, 0, 1] == float(pad_value)


def test_padding_per_channel_of_clips():
    clips = [random_array((2, 5, 8, 3)), random_array((2, 9, 4, 3))]
    for output in ("CTHW", "TCHW", "THWC"):
        fields = (
            pinfeed.Image(input="THWC", output=output, scale=1, pad_value=value)
            for value in ([300, 400, 500], 300)
        )
        batch, plain = (pinfeed.Collate(field)(clips) for field in fields)
        axis = 1 + output.index("C")
        for channel in range(3):
            part, pad = batch.select(axis, channel), 300 + 100 * channel
            expected = plain.select(axis, channel)
            assert torch.equal(part, expected.masked_fill(expected == 300, pad))


def test_zero_padding_per_channel_equals_padding_with_0():
    collate = pinfeed.Collate(pinfeed.Image(dtype=torch.uint8, pad_value=[0, 0, 0]))
    loader = torch.utils.data.DataLoader(images_of((4, 9), (6, 3)), 2, collate_fn=collate)
    check(
        lambda: list(pinfeed.DeviceLoader(loader, "cpu", fields=pinfeed.Image(MEAN, STD, input="CHW"))),
        ValueError, "must not normalize padding",
    )  # fmt: skip


def test_gray_images_need_no_layout():
    gray = np.random.default_rng(0).integers(0, 256, (3, 8, 6), np.uint8)
    expected = torch.from_numpy(gray)[:, None] / 255
    pil = [PIL.Image.fromarray(image) for image in gray]
    for samples in ([*gray], pil, [*torch.from_numpy(gray)]):
        torch.testing.assert_close(pinfeed.Collate(pinfeed.Image())(samples), expected)
    rows = pinfeed.ArrayDataset(gray).__getitems__([0, 1, 2])
    torch.testing.assert_close(pinfeed.Collate(pinfeed.Image())(rows), expected)
    flip = pinfeed.augment.RandomHorizontalFlip(p=1)
    flipped = pinfeed.Collate(pinfeed.Image(augment=flip, pad_value=0))([gray[0], gray[1][:5]])
    torch.testing.assert_close(flipped[0], expected[0].flip(2))
    loader = torch.utils.data.DataLoader([*gray], 3, collate_fn=pinfeed.Collate())
    (batch,) = pinfeed.DeviceLoader(loader, "cpu", fields=pinfeed.Image(mean=0.5))
    torch.testing.assert_close(batch, expected - 0.5)
