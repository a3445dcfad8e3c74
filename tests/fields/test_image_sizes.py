"""pinfeed.Image with images of different sizes in one batch: padding, sizes and masks."""

import math
import pickle
import re

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, bits, random_array, views
from pinfeed.fields.field import Beside

pytestmark = pytest.mark.kernels

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
DTYPES = ["float32", "float16", "bfloat16", "uint8"]
PAD_VALUES = {
    "float32": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 3e38, 1e-45],
    "float16": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 65504, 6e-8],
    "bfloat16": [0, -0.0, 1, 0.1, math.nan, math.inf, -math.inf, 3e38, 1e-40],
    "uint8": [0, 1, 127.0, 255],
}


def image_field(dtype="float32", mean=None, std=None, **arguments):
    if dtype == "uint8":
        mean = std = None
    return pinfeed.Image(mean, std, dtype=getattr(torch, dtype), **arguments)


def constants_of(dtype):
    return {} if dtype == "uint8" else {"mean": MEAN, "std": STD}


def images_of(*sizes, channels=3):
    return [random_array((*size, channels), seed=i) for i, size in enumerate(sizes)]


def assert_same_padding(padded, expected):
    """The values, lengths and mask of a Padded are, bit for bit, those of the reference."""
    for part, expected_part in zip(padded, expected, strict=True):
        assert_same_bits(part, expected_part)
    assert padded.lengths.dtype == torch.int64
    assert padded.mask.dtype == torch.bool


@st.composite
def image_lists(draw):
    """Images of any sizes, each with strides of its own, and the arguments for their batch."""
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
        "pad_value": draw(st.sampled_from(PAD_VALUES[dtype])),
        "multiple_of": draw(st.one_of(multiple, st.tuples(multiple, multiple))),
    }
    if dtype != "uint8":
        arguments["mean"] = [0.5 - 0.04 * c for c in range(channels)]
        arguments["std"] = draw(st.sampled_from([0.25, None]))
    return images, arguments


@given(image_lists(), st.booleans())
def test_any_sizes(isa, image_list, channels_last):
    images, arguments = image_list
    channels_last = channels_last and arguments["output"] == "CHW"
    field = image_field(**arguments, channels_last=channels_last, sizes=True, mask=True)
    padded = pinfeed.Collate(field)(images)
    arrays = [np.asarray(image) for image in images]
    assert_same_padding(padded, reference.padded_images(arrays, **arguments))
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert padded.values.is_contiguous(memory_format=memory_format)


# The native tests write around the cache with every instruction set; here it is chosen by size.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output", ["CHW", "HWC"])
@pytest.mark.parametrize(
    ("view", "multiple_of"), [(np.s_[3:-4, 5:-2], 1), (np.s_[:, ::-1], 32)], ids=str
)
def test_streaming(view, multiple_of, output, dtype):
    sizes = [(601, 803), (401, 700), (599, 100), (20, 795), (300, 803), (601, 802)]
    images = [image[view] for image in images_of(*sizes * (2 if dtype == "uint8" else 1))]
    arguments = {"output": output, "dtype": dtype, "multiple_of": multiple_of, "pad_value": 7}
    arguments |= constants_of(dtype)
    batch = pinfeed.Collate(image_field(**arguments))(images)
    expected = reference.padded_images(images, **arguments)[0]
    assert expected.nbytes > 16 << 20  # large enough on any machine
    np.testing.assert_array_equal(bits(batch), bits(expected))


def test_rows_too_wide_to_be_put_together_before_they_are_streamed():
    images = images_of((1500, 2900), (700, 3001))
    batch = pinfeed.Collate(pinfeed.Image(MEAN, STD, pad_value=-1))(images)
    expected = reference.padded_images(images, -1, mean=MEAN, std=STD)[0]
    np.testing.assert_array_equal(bits(batch), bits(expected))


def test_any_number_of_threads(num_threads):
    images = images_of((211, 307), (400, 20), (3, 500), (0, 7), (400, 500))
    field = pinfeed.Image(MEAN, STD, pad_value=0.5, sizes=True, mask=True)
    expected = reference.padded_images(images, 0.5, mean=MEAN, std=STD)
    assert_same_padding(pinfeed.Collate(field)(images), expected)


def test_images_of_one_size_are_as_without_padding():
    images = images_of((9, 21), (9, 21), (9, 21))
    for output in ("CHW", "HWC"):
        field = pinfeed.Image(MEAN, STD, output=output, pad_value=3)
        plain = pinfeed.Image(MEAN, STD, output=output)
        assert_same_bits(pinfeed.Collate(field)(images), pinfeed.Collate(plain)(images))


def test_no_pixels_at_all():
    field = pinfeed.Image(pad_value=0, multiple_of=8, sizes=True, mask=True)
    batch, sizes, mask = pinfeed.Collate(field)([np.zeros((0, 0, 3), np.uint8)] * 2)
    assert batch.shape == (2, 3, 0, 0)
    assert mask.shape == (2, 0, 0)
    assert sizes.tolist() == [[0, 0], [0, 0]]
    batch, sizes, mask = pinfeed.Collate(field)([np.zeros((5, 9, 0), np.uint8)])
    assert batch.shape == (1, 0, 8, 16)
    assert mask.sum() == 45


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", [np.s_[:], np.s_[::-1], np.s_[:, :, 1:]], ids=str)
def test_rows_of_a_dataset(view, dtype):
    images = random_array((7, 6, 10, 3))[view]
    rows = pinfeed.ArrayDataset(images).__getitems__([3, 1, 6, 3])
    arguments = {"dtype": dtype, "pad_value": 9, "multiple_of": (4, 16)} | constants_of(dtype)
    padded = pinfeed.Collate(image_field(**arguments, sizes=True, mask=True))(rows)
    expected = reference.padded_images([images[i] for i in [3, 1, 6, 3]], **arguments)
    assert_same_padding(padded, expected)


@pytest.mark.parametrize("sizes", [False, True, "size"])
@pytest.mark.parametrize("mask", [False, True, "where"])
def test_what_was_asked_for(sizes, mask):
    images = images_of((4, 9), (6, 3))
    expected = reference.padded_images(images, 0)
    field = pinfeed.Image(pad_value=0, sizes=sizes, mask=mask)
    assert field.names() == tuple(key for key in (sizes, mask) if isinstance(key, str))
    result = field.collate(images, pinfeed.Leaf("images"))
    leaf, siblings = result if isinstance(result, Beside) else (result, {})
    asked = (sizes is True, mask is True)
    assert isinstance(leaf, pinfeed.Padded if any(asked) else torch.Tensor)
    values, *parts = leaf if any(asked) else (leaf, None, None)
    assert_same_bits(values, expected[0])
    for part, is_asked, expected_part in zip(parts, asked, expected[1:], strict=True):
        assert_same_bits(part, expected_part) if is_asked else None
        assert (part is not None) == is_asked
    assert siblings.keys() == set(field.names())
    if sizes == "size":
        assert_same_bits(siblings["size"], expected[1])
    if mask == "where":
        assert_same_bits(siblings["where"], expected[2])


def detection_samples(count=12):
    rng = np.random.default_rng(0)
    sizes = rng.integers(20, 90, (count, 2))
    return [
        {"image": random_array((*size, 3), seed=i), "boxes": rng.random((i % 3, 4)), "id": i}
        for i, size in enumerate(sizes)
    ]


DETECTION = pinfeed.Collate(
    {
        "image": pinfeed.Image(
            MEAN, STD, pad_value=0, multiple_of=32, sizes="size", mask="mask", channels_last=True
        ),
        "boxes": pinfeed.Keep(),
    }
)


def test_detection():
    samples = detection_samples()
    batch = DETECTION(samples)
    assert list(batch) == ["image", "size", "mask", "boxes", "id"]
    images = [sample["image"] for sample in samples]
    expected = reference.padded_images(images, 0, multiple_of=32, mean=MEAN, std=STD)
    for key, part in zip(["image", "size", "mask"], expected, strict=True):
        assert_same_bits(batch[key], part)
    assert [boxes.shape for boxes in batch["boxes"]] == [(i % 3, 4) for i in range(12)]


def test_pickled():
    images = images_of((4, 5), (3, 7))
    field = pinfeed.Image(pad_value=0.5, multiple_of=(2, 4), sizes="size", mask=True)
    copy = pickle.loads(pickle.dumps(field))
    assert repr(copy) == repr(field)
    assert "pad_value=0.5, multiple_of=(2, 4), sizes='size', mask=True" in repr(field)
    assert "pad_value" not in repr(pinfeed.Image())
    one, other = (
        copy.collate(images, pinfeed.Leaf("images")),
        field.collate(images, pinfeed.Leaf("images")),
    )
    assert_same_bits(one.leaf.values, other.leaf.values)
    assert_same_bits(one.siblings["size"], other.siblings["size"])


@pytest.mark.parametrize(
    "pad_value",
    [np.float32(0.5), np.float64(0.5), np.array(1)[()], torch.tensor(0.5), True],
    ids=repr,
)
def test_numbers_of_other_kinds(pad_value):
    batch = pinfeed.Collate(pinfeed.Image(pad_value=pad_value))(images_of((1, 1), (1, 2)))
    assert batch[0, 0, 0, 1] == float(pad_value)


BAD_ARGUMENTS = {
    "uint8 too large": ({"pad_value": 256, "dtype": torch.uint8}, ValueError, "pad_value", "uint8"),
    "uint8 negative": ({"pad_value": -1, "dtype": torch.uint8}, ValueError, "pad_value", "-1"),
    "uint8 fraction": ({"pad_value": 0.5, "dtype": torch.uint8}, ValueError, "pad_value", "0.5"),
    "uint8 NaN": ({"pad_value": math.nan, "dtype": torch.uint8}, ValueError, "pad_value", "nan"),
    "float16": ({"pad_value": 65520, "dtype": torch.float16}, ValueError, "float16", "65520"),
    "bfloat16": ({"pad_value": 3.4e38, "dtype": torch.bfloat16}, ValueError, "bfloat16", "3.4e+38"),
    "float32": ({"pad_value": 1e39}, ValueError, "pad_value", "float32", "1e+39"),
    "beyond all floats": ({"pad_value": 10**400}, ValueError, "pad_value", "float32"),
    "complex": ({"pad_value": 1j}, ValueError, "pad_value", "1j"),
    "text": ({"pad_value": "0"}, TypeError, "pad_value", "number", "'0'"),
    "per channel": ({"pad_value": [0, 0, 0]}, TypeError, "pad_value", "number", "[0, 0, 0]"),
    "array": ({"pad_value": np.zeros(3)}, TypeError, "pad_value", "number"),
    "multiple of 0": ({"pad_value": 0, "multiple_of": 0}, ValueError, "multiple_of", "got 0"),
    "negative": ({"pad_value": 0, "multiple_of": (8, -8)}, ValueError, "multiple_of", "-8"),
    "too large": ({"pad_value": 0, "multiple_of": 2**63}, ValueError, "multiple_of", str(2**63)),
    "three": ({"pad_value": 0, "multiple_of": (8, 8, 8)}, ValueError, "multiple_of", "(8, 8, 8)"),
    "float": ({"pad_value": 0, "multiple_of": 8.0}, TypeError, "multiple_of", "8.0"),
    "bool": ({"pad_value": 0, "multiple_of": True}, TypeError, "multiple_of", "True"),
    "multiple text": ({"pad_value": 0, "multiple_of": "8"}, TypeError, "multiple_of", "'8'"),
    "multiple alone": ({"multiple_of": 8}, ValueError, "multiple_of", "pad_value"),
    "sizes alone": ({"sizes": True}, ValueError, "sizes", "pad_value"),
    "mask alone": ({"mask": "mask"}, ValueError, "mask", "pad_value"),
    "sizes": ({"pad_value": 0, "sizes": 1}, TypeError, "sizes", "True, False or the key", "got 1"),
    "mask": ({"pad_value": 0, "mask": None}, TypeError, "mask", "True, False or the key", "None"),
    "one key": ({"pad_value": 0, "sizes": "a", "mask": "a"}, ValueError, "different keys", "'a'"),
}


@pytest.mark.parametrize("bad", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
def test_arguments(bad):
    arguments, error, *words = bad
    with pytest.raises(error) as caught:
        pinfeed.Image(**arguments)
    message = str(caught.value)
    assert message.startswith("Image: ")
    assert [word for word in words if word not in message] == []


IMAGE, OTHER = images_of((4, 5), (3, 6))

BAD_SAMPLES = {
    "channels": (
        [IMAGE, OTHER[..., :2]],
        ValueError,
        "3 channels as in sample 0, got shape (3, 6, 2)",
    ),
    "rank": ([IMAGE, OTHER[..., 0]], ValueError, "3 axes as in sample 0 of shape (4, 5, 3), got"),
    "dtype": ([IMAGE, OTHER.astype("i1")], TypeError, "dtype uint8 as in sample 0"),
    "PIL modes": ([IMAGE, PIL.Image.new("L", (6, 3))], ValueError, "3 axes as in sample 0"),
    "a PIL palette": ([IMAGE, PIL.Image.new("P", (6, 3))], TypeError, "'RGB'"),
    "None": ([IMAGE, None], TypeError, "NumPy array or a torch tensor, got NoneType"),
    "CHW": ([IMAGE, OTHER.transpose(2, 0, 1)], ValueError, "3 channels as in sample 0"),
}


@pytest.mark.parametrize("bad", BAD_SAMPLES.values(), ids=BAD_SAMPLES.keys())
def test_samples(bad):
    samples, error, message = bad
    collate = pinfeed.Collate({"image": pinfeed.Image(pad_value=0, mask="mask")})
    where = re.escape("Collate: leaf ['image'] of sample 1: expected ")
    with pytest.raises(error, match=f"^{where}.*{re.escape(message)}"):
        collate([{"image": sample} for sample in samples])


def test_first_sample_is_no_image():
    collate = pinfeed.Collate(pinfeed.Image(pad_value=0))
    with pytest.raises(TypeError, match=r"of sample 0: expected uint8, .* got float64 \(4, 5, 3\)"):
        collate([IMAGE / 255, OTHER / 255])
    with pytest.raises(
        ValueError, match=r"of sample 0: expected images of shape .* got uint8 \(4, 5\)"
    ):
        collate([IMAGE[..., 0], OTHER[..., 0]])
    with pytest.raises(ValueError, match="3 channels and 4 values"):
        pinfeed.Collate(pinfeed.Image([0.5] * 4, pad_value=0))([IMAGE, OTHER])


def test_without_pad_value():
    message = (
        "Collate: leaf ['image'] of sample 1: expected shape (4, 5, 3) as in sample 0, "
        "got (3, 6, 3); pad_value"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        pinfeed.Collate({"image": pinfeed.Image()})([{"image": IMAGE}, {"image": OTHER}])
    with pytest.raises(ValueError, match=r"got \(4, 5, 2\); PIL"):
        pinfeed.Collate(pinfeed.Image())([IMAGE, IMAGE[..., :2]])


@pytest.mark.parametrize("multiple_of", [2**62, 2**63 - 1, (2**40, 2**40)], ids=str)
def test_larger_than_memory_can_be(multiple_of):
    collate = pinfeed.Collate(pinfeed.Image(pad_value=0, multiple_of=multiple_of, mask=True))
    with pytest.raises(ValueError, match="larger than memory can be"):
        collate([IMAGE, OTHER])


def test_more_than_there_is_memory():
    collate = pinfeed.Collate(pinfeed.Image(pad_value=0, multiple_of=2**23))
    with pytest.raises(MemoryError):
        collate([IMAGE, OTHER])
