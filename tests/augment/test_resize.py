"""Images resized in a Collate: torch's own values inside the crop, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, views
from crops import batch_and_crops
from messages import check
from pinfeed import augment
from programs import run_program

pytestmark = pytest.mark.kernels

NEAREST = ["nearest", "nearest-exact"]
INTERPOLATIONS = ["bilinear", "bicubic", *NEAREST]

resize, crop = augment.Resize, augment.RandomResizedCrop

side = st.one_of(st.integers(1, 12), st.integers(13, 70))
pairs = st.tuples(side, side)
flags = st.tuples(st.booleans(), st.booleans())


def resized(image, size, interpolation):
    """Returns torch's resize of an (H, W, C) image of bytes, as torchvision's v2 calls it."""
    if image.shape[:2] == tuple(size):
        return image
    antialias = {} if interpolation in NEAREST else {"antialias": True}
    # One channel at a time, because torch 2.13 is wrong for 5 channels and one column.
    planes = torch.from_numpy(image.transpose(2, 0, 1).copy())[:, None]
    planes = torch.nn.functional.interpolate(planes, size, mode=interpolation, **antialias)
    return planes[:, 0].numpy().transpose(1, 2, 0)


def flipped(image, flags):
    return image[:: -1 if flags[0] else 1, :: -1 if flags[1] else 1]


def flips(flags):
    axes = zip(flags, (augment.RandomVerticalFlip, augment.RandomHorizontalFlip), strict=True)
    return [flip(p=1) for flag, flip in axes if flag]


SCALES = {"uint8": 1 / 255, "uint16": 1 / 65535, "int16": 1 / 32767}


@st.composite
def cases(draw):
    """Draws images, a crop and flips before and after a resize, and the other arguments of Image."""
    source = draw(st.sampled_from(["uint8", "uint16", "int16", "float16", "bfloat16", "float32"]))
    stored = "uint16" if source == "bfloat16" else source
    input = draw(st.sampled_from(["HWC", "CHW", "HW"]))
    channels = draw(st.integers(1, 5)) if "C" in input else 1
    images = []
    for _ in range(draw(st.integers(1, 2))):
        sizes = dict(zip("HWC", (*draw(pairs), channels), strict=True))
        kind = "tensor" if source == "bfloat16" else draw(st.sampled_from(["ndarray", "tensor"]))
        shape = tuple(sizes[letter] for letter in input)
        images.append((draw(views(shape, stored, mirrored=kind != "tensor")), kind))
    crops = [None if draw(st.booleans()) else draw(pairs) for _ in range(2)]
    steps = crops[0], draw(flags), draw(pairs), crops[1], draw(flags)
    arguments = {"input": input, "output": draw(st.sampled_from(["CHW", "HWC"]))}
    arguments["interpolation"] = draw(st.sampled_from(INTERPOLATIONS))
    dtype = draw(st.sampled_from(["float32", "bfloat16", *["uint8"] * (source == "uint8")]))
    if dtype != "uint8":
        arguments["resize_dtype"] = draw(st.sampled_from([None, torch.float32]))
    return images, source, steps, arguments, dtype


@given(cases())
def test_any_resize(isa, case):
    images, source, (before, mirrored, size, after, mirrored_after), arguments, dtype = case
    transforms = [augment.CenterCrop(before)] if before else []
    transforms += [*flips(mirrored), resize(size)]
    transforms += [augment.CenterCrop(after)] if after else []
    view = augment.Compose([*transforms, *flips(mirrored_after)])
    constants = {} if dtype == "uint8" else {"mean": 0.4, "std": 0.25}
    scale = {} if "int" in dtype + source else {"scale": 1}  # floats can be outside 0..1
    field = pinfeed.Image(
        **constants, **scale, **arguments, dtype=getattr(torch, dtype), augment=view
    )
    in_floats = source != "uint8" or arguments.get("resize_dtype") is not None
    in_floats &= arguments["interpolation"] not in NEAREST
    expected = []
    for image, _ in images:
        input = arguments["input"]
        image = reference.widened(image, source) if source != "uint8" or in_floats else image
        image = image[..., None] if input == "HW" else reference.permute(image, input, "HWC")
        image = flipped(reference.center_crop(image, before) if before else image, mirrored)
        resize_image = reference.resized if in_floats else resized
        image = resize_image(image, size, arguments["interpolation"])
        image = reference.center_crop(image, after) if after else image
        expected.append(flipped(image, mirrored_after))
    output, batch = "N" + arguments["output"], np.stack(expected)
    if dtype == "uint8":
        batch = reference.permute(batch, "NHWC", output)
    else:
        layout = {"dtype": dtype, "input": "NHWC", "output": output}
        scale = SCALES.get(source, 1)
        batch = reference.normalized(batch, **constants, scale=scale, source="float32", **layout)
    samples = [as_kind(kind, image) for image, kind in images]
    if source == "bfloat16":
        samples = [sample.view(torch.bfloat16) for sample in samples]
    assert_same_numbers(pinfeed.Collate(field)(samples), batch, dtype)


def assert_same_numbers(batch, expected, dtype):
    """Asserts equal bits, except for the payloads of NaNs."""
    nans = np.isnan(reference.widened(expected, dtype))
    assert_same_bits(batch.masked_fill(torch.from_numpy(nans), 0), np.where(nans, 0, expected))
    assert np.array_equal(torch.isnan(batch).numpy(), nans)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(224, 224), (31, 2000), (3, 2), (500, 375)], ids=str)
def test_floats_equal_torch(interpolation, size):
    image = np.random.default_rng(0).random((300, 200, 3), np.float32)
    field = pinfeed.Image(output="HWC", interpolation=interpolation, augment=resize(size))
    batch = pinfeed.Collate(field)([image])[0]
    # In float32, torch rounds its weights several times.
    for dtype, most in ((np.float64, 8 * 2**-24), (np.float32, 2**-14)):
        of_torch = torch.from_numpy(resized(image.astype(dtype), size, interpolation))
        assert (batch - of_torch).abs().max() < most


def test_bytes_without_rounding_are_close_to_rounded_bytes():
    image = np.random.default_rng(0).integers(0, 256, (60, 50, 3), dtype=np.uint8)
    one, other = (
        pinfeed.Collate(pinfeed.Image(scale=1, augment=resize((37, 71)), resize_dtype=dtype))
        for dtype in (None, torch.float32)
    )
    difference = (one([image]) - other([image])).abs()
    assert 0.5 < difference.max() < 1.02


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(9, 9), (27, 5), (3, 9)], ids=str)
def test_nan_reaches_every_pixel_computed_from_it(isa, interpolation, size):
    image = np.zeros((9, 9, 3), np.float32)
    image[4, 5, 1] = 1
    weights = resized(image.astype(np.float64), size, interpolation)
    image[4, 5, 1] = np.nan
    field = pinfeed.Image(output="HWC", interpolation=interpolation, augment=resize(size))
    assert np.array_equal(torch.isnan(pinfeed.Collate(field)([image])[0]).numpy(), weights != 0)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_every_pair_of_sizes(isa, interpolation):
    # Each pair of sizes has its own weights.
    for before in range(1, 24):
        image = np.random.default_rng(before).integers(0, 256, (before, 25, 3), dtype=np.uint8)
        for after in range(1, 24):
            options = {"interpolation": interpolation, "augment": resize((after, 25 - after))}
            field = pinfeed.Image(output="HWC", dtype=torch.uint8, **options)
            expected = resized(image, (after, 25 - after), interpolation)
            assert np.array_equal(pinfeed.Collate(field)([image])[0], expected)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", [(500, 375), (31, 2000), (3, 1)], ids=str)
def test_images_much_enlarged_or_reduced(isa, interpolation, size):
    # Rows are longer than the staging buffer.
    image = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    field = pinfeed.Image(
        output="HWC", dtype=torch.uint8, interpolation=interpolation, augment=resize(size)
    )
    batch = pinfeed.Collate(field)([image, image[:, ::-1]])
    assert np.array_equal(batch[0], resized(image, size, interpolation))
    assert np.array_equal(batch[1], resized(image[:, ::-1], size, interpolation))


@pytest.mark.parametrize("padding_mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_padding_before_and_after_a_resize(isa, interpolation, padding_mode):
    image = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    border = {"fill": [10, 20, 30]} if padding_mode == "constant" else {}
    border["padding_mode"] = padding_mode
    crops = [
        augment.RandomCrop((13, 14), padding=(3, 2, 3, 2), **border),
        augment.RandomCrop((16, 15), padding=(2, 3, 1, 4), **border),
    ]
    view = augment.Compose([crops[0], resize((9, 12)), crops[1], *flips((True, True))])
    field = pinfeed.Image(
        output="HWC", dtype=torch.uint8, interpolation=interpolation, augment=view
    )
    padded = reference.padded_image(image, ((2, 2), (3, 3)), **border)
    small = resized(padded, (9, 12), interpolation)
    expected = reference.padded_image(small, ((3, 4), (2, 1)), **border)
    assert np.array_equal(pinfeed.Collate(field)([image])[0], flipped(expected, (True, True)))


@pytest.mark.parametrize("resize_dtype", [None, torch.float32])
def test_two_interpolations_are_drawn_per_sample(isa, resize_dtype):
    """The draw doesn't depend on the batch."""
    images = np.random.default_rng(4).integers(0, 256, (60, 9, 14, 3), dtype=np.uint8)
    rows = pinfeed.ArrayDataset(images)
    options = {"augment": resize((6, 20)), "resize_dtype": resize_dtype}
    field = pinfeed.Image(interpolation=("bilinear", "bicubic"), **options)
    assert field.is_random
    result = pinfeed.Collate(field, seed=5)(rows.__getitems__(range(60)))
    assert torch.equal(pinfeed.Collate(field, seed=5)(rows.__getitems__([7, 3])), result[[7, 3]])
    both = [
        pinfeed.Collate(pinfeed.Image(interpolation=name, **options))(list(images))
        for name in ("bilinear", "bicubic")
    ]
    drawn = [reference.random_bits(5, 0, i, 2**61)[0] * 2 >> 64 for i in range(60)]
    assert 15 < sum(drawn) < 45
    for i, which in enumerate(drawn):
        assert torch.equal(result[i], both[which][i])
        assert not torch.equal(result[i], both[1 - which][i])
    alone = pinfeed.Image(interpolation=["bicubic"], **options)
    assert not alone.is_random
    assert torch.equal(pinfeed.Collate(alone)(list(images)), both[1])


@pytest.mark.parametrize("names", [["bilinear", "nearest-exact"], ["x"], [["bilinear"]], [None]])
def test_fixed_interpolations_draw_nothing(names):
    words = "interpolation must be one name, or a list of 'bilinear' and 'bicubic' to draw from"
    make = lambda: pinfeed.Image(augment=resize((4, 4)), interpolation=names)
    check(make, ValueError, words, repr(names))


def test_a_fill_after_a_float_resize_is_a_float():
    fill = [7.5, 300, -1]
    view = augment.Compose([resize((4, 4)), augment.RandomCrop((6, 4), padding=(0, 1), fill=fill)])
    field = pinfeed.Image(scale=1, output="HWC", augment=view, resize_dtype=torch.float32)
    batch = pinfeed.Collate(field)([np.zeros((8, 8, 3), np.uint8)])[0]
    assert (batch[[0, 5]] == torch.tensor(fill)).all()
    assert not batch[1:5].any()


@given(
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.integers(0, 2**40),
    st.sampled_from([((0.08, 1), (3 / 4, 4 / 3)), ((0.5, 3), (0.2, 0.3)), ((1e-6, 1e-6), (2, 9))]),
    st.booleans(),
)
def test_random_resized_crops(image_size, seed, ranges, is_cropped_before):
    image = np.random.default_rng(0).integers(0, 256, (*image_size, 3), dtype=np.uint8)
    scale, ratio = ranges
    steps = [crop((49, 9), scale=scale, ratio=ratio)]
    if is_cropped_before:
        steps.insert(0, augment.CenterCrop(image_size[0]))
        image = reference.center_crop(image, (image_size[0],) * 2)
    field = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=augment.Compose(steps))
    batch, windows = batch_and_crops(field, [image] * 4, seed)
    for index in range(4):
        number = len(steps) - 1
        draws = [reference.uniform(seed, 0, index, draw << 16 | number) for draw in range(20)]
        top, left, height, width = reference.random_window(*image.shape[:2], draws, scale, ratio)
        window = image[top : top + height, left : left + width]
        assert np.array_equal(batch[index], resized(window, (49, 9), "bilinear"))
        assert windows[index].round().tolist() == [top, left, height, width, 0, 0]


@pytest.mark.parametrize("before", [(False, False), (True, True)], ids=str)
@pytest.mark.parametrize("after", [(False, True), (True, False)], ids=str)
def test_crops_reported_through_a_resize(before, after):
    # 12 of 16 rows from row 2, 16 of 10 columns from column -3; 2 pixels and half a pixel each.
    steps = [*flips(before), resize((16, 10)), augment.CenterCrop((12, 16)), *flips(after)]
    field = pinfeed.Image(augment=augment.Compose(steps))
    _, windows = batch_and_crops(field, [np.zeros((32, 5, 3), np.uint8)])
    mirrored = [one != other for one, other in zip(before, after, strict=True)]
    assert windows.tolist() == [[4, -1.5, 24, 8, *mirrored]]


@given(pairs, st.one_of(st.none(), st.integers(1, 30), pairs), st.integers(1, 60))
def test_sizes(image_size, size, max_size):
    max_size = None if isinstance(size, tuple) or max_size <= (size or 0) else max_size
    if size is None and max_size is None:
        return
    expected = reference.resized_size(*image_size, size, max_size)
    field = pinfeed.Image(dtype=torch.uint8, augment=resize(size, max_size=max_size))
    image = np.ones((*image_size, 2), np.uint8)
    if 0 in expected:
        check(lambda: pinfeed.Collate(field)([image]), ValueError, "a side of 0 pixels")
    else:
        assert pinfeed.Collate(field)([image]).shape[2:] == expected


@pytest.mark.processes
def test_too_little_memory_for_weights_raises():
    printed = run_program("resize_weights_without_memory")
    assert printed == "Collate: no memory for temporary buffers; pass less at once\n" * 2
