"""Random erasing: torchvision's rectangles, and unchanged pixels outside them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from pinfeed import augment
from programs import run_program

pytestmark = pytest.mark.kernels

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.uint8]


def rectangle(draws, height, width, p, scale, ratio):
    """Returns top, left, height and width as torchvision computes them; ``draws`` yields pairs of numbers."""
    if next(draws)[0] >= p:
        return 0, 0, 0, 0
    for _ in range(10):
        area_share, log_share = next(draws)
        top, left = next(draws)
        area = height * width * (scale[0] + area_share * (scale[1] - scale[0]))
        low, high = map(math.log, ratio)
        aspect = math.exp(low + log_share * (high - low))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if h < height and w < width:
            return int(top * (height - h + 1)), int(left * (width - w + 1)), h, w
    return 0, 0, 0, 0


def written(value, shape, dtype, seed, sample):
    """Returns the (C, h, w) replacement values: constants, or normal numbers from 16 bits each."""
    if value != "random":
        numbers = torch.tensor(value, dtype=torch.float64).view(-1, 1, 1)
        return numbers.to(dtype).expand(shape)
    channels, height, width = shape
    draws = -(-channels * width // 8)  # for each row
    bits = [reference.random_bits(seed, 0, sample, 3 << 62 | k) for k in range(height * draws)]
    shares = (np.array(bits, np.uint64).reshape(height, 2 * draws).view("<u2") + 0.5) / 2**16
    normal = torch.special.ndtri(torch.from_numpy(shares)).to(dtype)[:, : channels * width]
    return normal.reshape(height, channels, width).transpose(0, 1)


@st.composite
def ranges(draw, low, high):
    return tuple(sorted(draw(st.tuples(*[st.floats(low, high)] * 2))))


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(DTYPES),
    st.sampled_from([{"output": "CHW"}, {"output": "HWC"}, {"channels_last": True}]),
    st.sampled_from([0.4, 1]),
    ranges(0, 1),
    ranges(0.1, 10),
    st.booleans(),
    st.sampled_from(["number", "numbers", "random"]),
    st.integers(0, 2**40),
)
def test_rectangles(shape, dtype, layout, p, scale, ratio, is_cropped, kind, seed):
    count, channels, height, width = shape
    images = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    value = {"number": 7, "numbers": list(range(1, channels + 1)), "random": "random"}[kind]
    if dtype == torch.uint8 and value == "random":
        value = 7
    erasing = augment.RandomErasing(p, scale, ratio, value)
    options = layout | {"input": "CHW", "dtype": dtype}
    flips = [augment.RandomHorizontalFlip()] if is_cropped else []
    rows = pinfeed.ArrayDataset(images).__getitems__(range(count))
    expected = pinfeed.Collate(pinfeed.Image(**options, augment=flips), seed=seed)(rows)
    planes = expected if layout != {"output": "HWC"} else expected.permute(0, 3, 1, 2)
    for i, image in enumerate(planes):
        draws = (reference.uniform(seed, 0, i, 2**63 + number) for number in range(21))
        top, left, h, w = rectangle(draws, height, width, p, scale, ratio)
        image[:, top : top + h, left : left + w] = written(value, (channels, h, w), dtype, seed, i)
    batch = pinfeed.Collate(pinfeed.Image(**options, augment=[*flips, erasing]), seed=seed)(rows)
    assert batch.stride() == expected.stride()
    assert torch.equal(batch, expected)


CLIPS = [("CTHW", False), ("CTHW", True), ("TCHW", False), ("TCHW", True), ("THWC", False)]


@pytest.mark.parametrize(("output", "channels_last"), CLIPS)
@pytest.mark.parametrize("value", [[300, 301, 302], "random"])
def test_all_frames_of_a_clip_lose_the_same_rectangle(output, channels_last, value):
    clips = np.random.default_rng(0).integers(0, 256, (6, 4, 9, 11, 3), dtype=np.uint8)
    options = {"scale": 1, "input": "THWC", "output": output, "channels_last": channels_last}
    rows = pinfeed.ArrayDataset(clips).__getitems__(range(6))
    expected = pinfeed.Collate(pinfeed.Image(**options), seed=2)(rows)
    for i, clip in enumerate(expected.permute(0, *(1 + output.index(x) for x in "TCHW"))):
        draws = (reference.uniform(2, 0, i, 2**63 + number) for number in range(21))
        top, left, h, w = rectangle(draws, 9, 11, 1, (0.02, 0.33), (0.3, 3.3))
        values = written(value, (3, h, w), torch.float32, 2, i)
        clip[:, :, top : top + h, left : left + w] = values
    field = pinfeed.Image(**options, augment=augment.RandomErasing(1, value=value))
    batch = pinfeed.Collate(field, seed=2)(rows)
    assert batch.stride() == expected.stride()
    assert torch.equal(batch, expected)


def test_masks_without_channels():
    mask = {"input": "HW", "dtype": torch.int64, "augment": augment.RandomErasing(value=255)}
    rows = pinfeed.ArrayDataset(np.zeros((9, 16, 16), np.uint8)).__getitems__(range(9))
    batch = pinfeed.Collate(pinfeed.Image(**mask, output="HW"), seed=0)(rows)
    assert torch.equal(batch, pinfeed.Collate(pinfeed.Image(**mask), seed=0)(rows)[:, 0])
    assert (batch == 255).any()


@pytest.mark.parametrize("output", ["CHW", "HWC"])
def test_rectangles_that_fit_no_image_erase_nothing(output):
    ratio = (1e300, 1e308)
    image = pinfeed.Image(output=output, augment=augment.RandomErasing(1, ratio=ratio, value=1))
    assert not pinfeed.Collate(image)([np.zeros((9, 9, 3), np.uint8)]).any()


@pytest.mark.processes
@pytest.mark.parametrize("value", ["1", "random"])
def test_too_little_memory_raises(value):
    printed = run_program("erasing_without_memory", value)
    assert printed == "an error\n"
