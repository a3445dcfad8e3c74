"""patch_grid compared with transformers' functions, patchify with slices of normalized images."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, bits, random_array, views
from messages import check

kernels = pytest.mark.kernels
sides = st.one_of(st.integers(1, 60), st.integers(1, 2000), st.integers(1, 40_000))
MEAN, STD = (0.5, 0.25, 0.125), (0.3, 0.5, 0.2)


@given(sides, sides, st.sampled_from([14, 16]), st.integers(1, 3), st.data())
def test_grids_by_pixels_equal_qwen(height, width, patch, merge, data):
    smart_resize = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    low = data.draw(st.integers(1, 10**6))
    high = data.draw(st.integers(low, 2 * 10**6))
    rule = {"merge": merge, "min_pixels": low, "max_pixels": high}
    try:
        size = smart_resize.smart_resize(height, width, patch * merge, low, high)
    except ValueError:
        with pytest.raises(ValueError, match="200 times"):
            pinfeed.functional.patch_grid(height, width, patch, **rule)
    else:
        expected = tuple(side // patch for side in size)
        assert pinfeed.functional.patch_grid(height, width, patch, **rule) == expected


@given(sides, sides, st.sampled_from([14, 16]), st.integers(1, 1024))
def test_grids_by_patches_equal_siglip(height, width, patch, most):
    siglip = pytest.importorskip("transformers.models.siglip2.image_processing_pil_siglip2")
    size = siglip.get_image_size_for_max_num_patches(height, width, patch, most)
    expected = tuple(side // patch for side in size)
    assert pinfeed.functional.patch_grid(height, width, patch, max_patches=most) == expected


def test_grids_of_columns_of_sizes():
    rng = np.random.default_rng(0)
    heights, widths = rng.integers(28, 2000, (2, 50, 2))
    rule = {"merge": 2, "min_pixels": 56 * 56, "max_pixels": 10**6}
    rows, columns = pinfeed.functional.patch_grid(heights, widths, 14, **rule)
    assert rows.shape == columns.shape == (50, 2)
    for i in np.ndindex(50, 2):
        one = pinfeed.functional.patch_grid(int(heights[i]), int(widths[i]), 14, **rule)
        assert one == (rows[i], columns[i])


@st.composite
def clips(draw):
    """Draws clips of any sizes and strides, and options for their patches."""
    patch, merge, temporal = draw(st.tuples(*[st.integers(1, top) for top in (20, 3, 4)]))
    input = draw(st.sampled_from(["HWC", "CHW", "THWC", "CTHW"]))
    channels = draw(st.integers(1, 4))
    size = st.integers(1, 3).map(lambda blocks: blocks * patch * merge)
    kind = draw(st.sampled_from(["ndarray", "tensor"]))
    images = []
    for _ in range(draw(st.integers(1, 3))):
        sizes = {"T": draw(st.integers(1, 5)), "H": draw(size), "W": draw(size), "C": channels}
        shape = tuple(sizes[letter] for letter in input)
        images.append(as_kind(kind, draw(views(shape, mirrored=kind != "tensor"))))
    order = draw(st.sampled_from(["CHW", "HWC"]))
    return images, patch, {"input": input, "merge": merge, "temporal": temporal, "order": order}


def expected_patches(images, patch, mean, std, dtype="float32", **how):
    """Returns the concatenated patches and the grid."""
    parts, grid = [], []
    for image in images:
        layout, array = how["input"], np.asarray(image)
        if "T" not in layout:
            layout, array = "T" + layout, array[np.newaxis]
        clip = reference.permute(array, layout, "THWC")
        values = reference.images(clip, mean, std, dtype=dtype, output="NHWC")
        cut = {key: how[key] for key in ("merge", "temporal", "order")}
        parts.append(reference.patches(values, patch, **cut))
        times = -(-len(clip) // how["temporal"])
        grid.append([times, clip.shape[1] // patch, clip.shape[2] // patch])
    return np.concatenate(parts), grid


@kernels
@given(clips(), st.sampled_from(["float32", "float16", "bfloat16", "uint8"]), st.integers(1, 3))
def test_patches_equal_slices_of_normalized_images(isa, case, dtype, threads):
    images, patch, how = case
    constants = (None, None) if dtype == "uint8" else (0.5, 0.3)
    expected, grid = expected_patches(images, patch, *constants, dtype=dtype, **how)
    before = pinfeed.get_num_threads()
    pinfeed.set_num_threads(threads)
    try:
        if dtype == "bfloat16":  # which NumPy lacks
            images = [as_kind("tensor", np.asarray(image).copy()) for image in images]
        values, actual = pinfeed.functional.patchify(
            images, patch, *constants, dtype=getattr(torch, dtype), **how
        )
    finally:
        pinfeed.set_num_threads(before)
    assert actual.tolist() == grid
    assert_same_bits(values, expected)


@kernels
@pytest.mark.parametrize("patch", [14, 16, 40])
@pytest.mark.parametrize("temporal", [1, 2])
def test_streamed_large_batches_have_equal_bits(isa, patch, temporal):
    side = 4 * patch * (5 if patch == 40 else 12)
    images = [random_array((side, side, 3), seed=seed) for seed in range(2)]
    how = {"merge": 2, "temporal": temporal}
    values, _ = pinfeed.functional.patchify(images, patch, MEAN, STD, **how)
    expected, _ = expected_patches(images, patch, MEAN, STD, order="CHW", input="HWC", **how)
    assert values.nbytes > 2**23
    np.testing.assert_array_equal(bits(values), bits(expected))


@kernels
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("interpolation", ["bicubic", "nearest"])
@pytest.mark.parametrize("order", ["CHW", "HWC"])
def test_resized_patches_equal_patches_of_the_resized_image(isa, dtype, interpolation, order):
    rng = np.random.default_rng(1)
    for _ in range(4):
        height, width = rng.integers(20, 300, 2)
        image = random_array((height, width, 3), "u1").astype(dtype)
        if dtype == "float32":
            image = image / np.float32(255)
        if dtype == "uint16":
            image = image * 257
        frames = [image, image[::-1], image[:, ::-1]]
        clip = np.stack(frames)
        rule = {"merge": 2, "min_pixels": 40**2, "max_pixels": 120**2}
        how = {"input": "THWC", "temporal": 2, "order": order, "interpolation": interpolation}
        values, grid = pinfeed.functional.patchify([clip], 7, MEAN, STD, **how, **rule)
        size = tuple(int(side) * 7 for side in grid[0, 1:])
        options = {"augment": pinfeed.augment.Resize(size), "interpolation": interpolation}
        resized = pinfeed.Collate(pinfeed.Image(MEAN, STD, output="HWC", **options))(frames)
        expected = reference.patches(resized.numpy(), 7, 2, 2, order)
        assert_same_bits(values, expected)


def test_out_is_written():
    images = random_array((2, 8, 12, 3))
    values, grid = pinfeed.functional.patchify(images, 4, MEAN, STD)
    out = np.empty_like(values)
    same, _ = pinfeed.functional.patchify(images, 4, MEAN, STD, out=out)
    assert same is out
    assert_same_bits(out, values)
    assert grid.tolist() == [[1, 2, 3]] * 2


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_no_images(kind):
    for shape, options in (
        ((0, 8, 12, 1), {}),
        ((0, 2, 8, 12, 3), {"input": "THWC", "temporal": 2}),
        ((0, 3, 8, 8), {"input": "CHW", "max_patches": 9, "mean": MEAN}),
    ):
        few, more = kind(np.zeros(shape, np.uint8)), kind(np.zeros((1, *shape[1:]), np.uint8))
        values, grid = pinfeed.functional.patchify(few, 4, **options)
        expected, other = pinfeed.functional.patchify(more, 4, **options)
        assert (type(values), type(grid)) == (type(expected), type(other))
        assert (values.dtype, grid.dtype) == (expected.dtype, other.dtype)
        assert values.shape == (0, expected.shape[1])
        assert grid.shape == (0, 3)


def test_an_empty_list():
    for input in ("HWC", "CHW", "TCHW"):
        options = {"mean": [0.5] * 5, "dtype": torch.bfloat16, "input": input}
        values, grid = pinfeed.functional.patchify([], 4, **options)
        assert (values.dtype, values.shape, grid.shape) == (torch.bfloat16, (0, 80), (0, 3))


GOOD = np.zeros((8, 12, 3), np.uint8)
BAD_IMAGES = [
    ([GOOD, np.zeros((8, 13, 3), np.uint8)], ValueError, "sample 1"),
    ([GOOD, GOOD[..., 0]], ValueError, "sample 1"),
    ([GOOD, np.zeros((8, 12, 4), np.uint8)], ValueError, "RGB"),
    ([np.zeros((8, 8, 4), np.uint8)], ValueError, '.convert("RGB")'),
    ([GOOD[..., :1]], ValueError, "expected 3 channels, one for each value of mean and std, got 1"),
    ([GOOD.astype(np.int64)], TypeError, "astype(np.uint8)"),
    ([GOOD], ValueError, "(6, 48)"),
    ([], ValueError, "out must have shape (0, 48), got (12, 48)"),
    ("", TypeError, "must be a list of images"),
    (iter([GOOD]), TypeError, "images must be a list"),
]  # fmt: skip


@pytest.mark.parametrize(("images", "error", "words"), BAD_IMAGES, ids=range(len(BAD_IMAGES)))
def test_bad_input_leaves_out_untouched(images, error, words):
    out = np.full((12, 48), 7, np.float32)
    check(lambda: pinfeed.functional.patchify(images, 4, MEAN, STD, out=out), error, words)
    assert (out == 7).all()


RULE = {"min_pixels": 100, "max_pixels": 10_000}
COLUMNS = np.array([40, 40, 9000]), np.array([40, 42, 40])
# Sizes and arguments of patch_grid.
BAD_GRIDS = [
    ((8, 8), {"merge": 0}, ValueError, "merge must be at least 1"),
    ((8, 8), {"merge": 2, "multiple_of": 3}, ValueError, "multiple_of must be a multiple of merge"),
    ((8, 8), {"min_pixels": 5}, ValueError, "must be passed together"),
    ((8, 8), {"min_pixels": 6, "max_pixels": 5}, ValueError, "at most max_pixels"),
    ((8, 8), {"max_patches": 6, "merge": 2}, ValueError, "can't be combined"),
    ((8, 8), {"max_patches": 6, "min_pixels": 5, "max_pixels": 9}, ValueError, "can't be combined"),
    ((8, 8), {"min_pixels": 0, "max_pixels": 9}, ValueError, "min_pixels must be from 1"),
    ((8, 8), {"max_patches": 1.5}, TypeError, "must be an integer"),
    (COLUMNS, {"merge": 2}, ValueError, "sample 1", "multiples of 8"),
    (COLUMNS, RULE, ValueError, "sample 2", "200 times", "crop"),
    ((40, 30), {"min_side": 32, **RULE}, ValueError, "at least 32"),
    ((0, 30), RULE, ValueError, "at least 1"),
    ((4.5, 30), RULE, TypeError, "must be integers"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_GRIDS, ids=range(len(BAD_GRIDS)))
def test_bad_grids(bad):
    sizes, arguments, error, *words = bad
    check(
        lambda: pinfeed.functional.patch_grid(*sizes, 4, **arguments), error, "patch_grid", *words
    )
    if np.array_equal(sizes, (8, 8)):
        images = np.zeros((1, 8, 8, 1), np.uint8)
        check(lambda: pinfeed.functional.patchify(images, 4, **arguments), error, *words)


CLIPS = [np.zeros((3, 8, 8, 3), np.uint8), np.zeros((2, 8, 9, 3), np.uint8)]
BAD_PATCHES = [
    ([], {"order": "WHC"}, ValueError, "order"),
    ([], {"dtype": torch.int64}, ValueError, "dtype"),
    ([], {"interpolation": "area"}, ValueError, "interpolation"),
    ([], {"mean": 0.5, "dtype": torch.uint8}, ValueError, "keeps values"),
    (GOOD[None], {"dtype": "bfloat16"}, TypeError, "pass tensors"),
    (CLIPS, {"input": "THWC", "temporal": 2}, ValueError, "sample 1", "multiples of 4"),  # not frame 3
    ([CLIPS[0], CLIPS[0][:0]], {"input": "THWC"}, ValueError, "sample 1: expected a clip of at least one frame"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_PATCHES, ids=range(len(BAD_PATCHES)))
def test_bad_patches(bad):
    images, arguments, error, *words = bad
    check(lambda: pinfeed.functional.patchify(images, 4, **arguments), error, *words)
