"""Image: images of every kind and dtype, masks of classes and clips, against exact arithmetic."""

import itertools

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, interpolate

import pinfeed
import reference
from arrays import assert_same_bits, bits, random_array, views
from messages import check
from pinfeed import augment

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
    """The array, as a tensor where NumPy lacks the dtype."""
    return torch.from_numpy(array).view(torch.bfloat16) if dtype == "bfloat16" else array


@st.composite
def image_lists(draw, dtypes):
    """Images of one size with strides of their own, their dtype and layout."""
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
        scale = scale or 1  # or images beyond 0..1 are refused
    channels = images[0].shape[input.index("C")] if "C" in input else 1
    constants = {"mean": [0.5 - 0.04 * c for c in range(channels)], "std": 0.25, "scale": scale}
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
    assert np.array_equal(torch.isnan(batch).numpy(), nans)  # their payload follows no rule
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert batch.is_contiguous(memory_format=memory_format)


def test_reference_rounds_once():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(2000).astype(np.float32) * np.float32(1e3)
    scale, bias = float(np.float32(1 / 3)), float(np.float32(-0.7))
    exact = [reference.exact_multiply_add(float(value), scale, bias) for value in values]
    assert_same_bits(reference.multiply_add(values, scale, bias), np.array(exact, np.float32))


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
def test_what_is_seen_does_not_depend_on_the_dtype(isa, output, mode, channels):
    """Bytes are seen right; other dtypes hold them all."""
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
def test_nearest(dtype, size):
    masks = torch.from_numpy(random_array((3, 21, 17)).astype(dtype))
    view = augment.Resize(size)
    options = {"dtype": torch.int64} if dtype == "int64" else {"scale": 1}
    field = pinfeed.Image(input="HW", output="HW", augment=view, interpolation="nearest", **options)
    batch = pinfeed.Collate(field)(list(masks))
    assert torch.equal(batch.double(), interpolate(masks[:, None].double(), size)[:, 0])


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
    batch = pinfeed.normalize(clips, input="N" + input, output="N" + output, scale=1)
    assert_same_bits(batch, expected)
    assert_same_bits(collate(pinfeed.ArrayDataset(clips).__getitems__([0, 1, 2, 3])), expected)
    if output in ("CTHW", "TCHW"):
        last = pinfeed.Collate(pinfeed.Image(**options, channels_last=True))(list(clips))
        assert_same_bits(last, expected)
        assert last.movedim(1 + output.index("C"), -1).is_contiguous()


@pytest.mark.parametrize("resized", [False, True])
def test_all_frames_of_a_clip_are_seen_alike(resized):
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


def test_masks_reach_the_loss():
    image, mask = random_array((13, 21, 3)), random_array((13, 21)) % 2
    fields = {
        "image": pinfeed.Image(augment=VIEW),
        "mask": pinfeed.Image(input="HW", output="HW", dtype=torch.int64, augment=VIEW),
    }
    batch = pinfeed.Collate(fields)([{"image": image, "mask": mask}] * 2)
    assert batch["mask"].shape == (2, 9, 12)
    assert batch["mask"].dtype == torch.int64
    logits = torch.nn.Conv2d(3, 8, 1)(batch["image"])
    assert cross_entropy(logits, batch["mask"]).isfinite()


# Bytes.


def image_field(dtype="float32", mean=None, std=None, **arguments):
    if dtype == "uint8":
        mean = std = None
    return pinfeed.Image(mean, std, dtype=getattr(torch, dtype), **arguments)


def expected_batch(images, input="HWC", output="CHW", **arguments):
    batch = np.stack([np.asarray(image) for image in images])
    return reference.images(batch, input="N" + input, output="N" + output, **arguments)


# The native tests write around the cache with every instruction set; here it is chosen by size.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("view", [np.s_[3:-4, 5:-2], np.s_[::-1, ::-1, ::-1]], ids=str)
def test_streaming(view, output, dtype):
    images = [
        random_array((601, 803, 3), seed=i)[view] for i in range(12 if dtype == "uint8" else 6)
    ]
    batch = pinfeed.Collate(image_field(dtype, MEAN, STD, output=output))(images)
    constants = {} if dtype == "uint8" else {"mean": MEAN, "std": STD}
    expected = expected_batch(images, output=output, dtype=dtype, **constants)
    np.testing.assert_array_equal(bits(batch), bits(expected))


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "view",
    [np.s_[:], np.s_[:, ::-1], np.s_[..., ::-1], np.s_[:, ::-1, ::-1], np.s_[::2, ::-2]],
    ids=["plain", "mirrored", "BGR", "mirrored BGR", "mirrored step"],
)
def test_pixels_in_any_order(isa, view, channels):
    for size in [(1, 1), (2, 3), (9, 21), (33, 65)]:
        images = [random_array((*size, channels), seed=i)[view] for i in range(2)]
        for dtype, output in itertools.product(DTYPES, OUTPUTS):
            field = image_field(dtype, input="HWC", output=output)
            batch = pinfeed.Collate(field)(images)
            assert_same_bits(batch, expected_batch(images, dtype=dtype, output=output))


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


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "CMYK", "YCbCr", "LAB", "HSV"])
def test_pil_modes(mode):
    bands = len(PIL.Image.new(mode, (1, 1)).getbands())
    arrays = [random_array((9, 21, bands), seed=i) for i in range(3)]
    images = [PIL.Image.frombytes(mode, (21, 9), array.tobytes()) for array in arrays]
    batch = pinfeed.Collate(pinfeed.Image(0.5, 0.25))(images)
    assert_same_bits(batch, expected_batch(arrays, mean=0.5, std=0.25))


def test_pil_grey():
    arrays = [random_array((9, 21), seed=i) for i in range(3)]
    images = [PIL.Image.fromarray(array) for array in arrays]
    batch = pinfeed.Collate(pinfeed.Image(0.5, 0.25, input="HW"))(images)
    assert_same_bits(batch, expected_batch(arrays, input="HW", mean=0.5, std=0.25))
