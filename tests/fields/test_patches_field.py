"""pinfeed.Patches in a Collate: concatenated patches and their grids."""

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from arrays import assert_same_bits, random_array
from messages import check

MEAN, STD = (0.5, 0.25, 0.125), (0.3, 0.5, 0.2)
RULE = {"merge": 2, "temporal": 2, "min_pixels": 20**2, "max_pixels": 60**2}


def photos(count, seed=0):
    rng = np.random.default_rng(seed)
    return [random_array((*rng.integers(20, 90, 2), 3), seed=i) for i in range(count)]


def alone(image, **arguments):
    """Returns the patches of one image and its row of the grid."""
    return pinfeed.functional.patchify([image], 7, MEAN, STD, **RULE | arguments)


def field(**arguments):
    return pinfeed.Patches(7, MEAN, STD, **RULE | arguments)


def test_lists_of_images_follow_the_order_of_samples():
    images = photos(5)
    samples = [images[:2], [], images[2], None, tuple(images[3:])]
    values, grid, ends = pinfeed.Collate(field(cu_seqlens=True))(samples)
    parts = [alone(image) for image in images]
    assert_same_bits(values, np.concatenate([part for part, _ in parts]))
    assert grid.tolist() == [grid.tolist()[0] for _, grid in parts]
    assert grid.dtype == torch.int64
    assert ends.dtype == torch.int32
    assert ends.tolist() == [0, *np.cumsum([len(part) for part, _ in parts])]


def test_extra_keys_follow_the_entry():
    images = photos(3)
    fields = {
        "pixel_values": field(grid="image_grid_thw", cu_seqlens="cu_seqlens").from_key("image")
    }
    batch = pinfeed.Collate(fields)([{"image": image, "label": 1} for image in images])
    assert set(batch) == {"pixel_values", "image_grid_thw", "cu_seqlens", "label"}
    assert_same_bits(batch["pixel_values"], np.concatenate([alone(image)[0] for image in images]))
    bare = pinfeed.Collate(field(grid=False))(images)
    assert_same_bits(bare, batch["pixel_values"].numpy())


def test_clips_repeat_their_last_frame_as_padding():
    clips = [random_array((frames, 30, 50, 3), seed=frames) for frames in (1, 2, 5)]
    values, grid, ends = pinfeed.Collate(field(input="THWC", cu_seqlens=True))(clips)
    filled = [np.concatenate([clip, *[clip[-1:]] * (len(clip) % 2)]) for clip in clips]
    pairs = [clip[i : i + 2] for clip in filled for i in range(0, len(clip), 2)]
    assert_same_bits(values, np.concatenate([alone(pair, input="THWC")[0] for pair in pairs]))
    assert grid[:, 0].tolist() == [1, 1, 3]
    assert len(ends) == 1 + len(pairs)
    assert ends[-1] == len(values)


def test_padding_to_a_number_of_patches():
    images = photos(4)
    most = 24
    options = {"order": "HWC", "max_patches": most, "interpolation": "bilinear"}
    padded = pinfeed.Patches(7, MEAN, STD, pad_to=most + 3, mask=True, **options)
    values, shapes, mask = pinfeed.Collate(padded)(images)
    assert values.shape == (4, most + 3, 7 * 7 * 3)
    for row, shape, there, image in zip(values, shapes, mask, images, strict=True):
        expected, grid = pinfeed.functional.patchify([image], 7, MEAN, STD, **options)
        assert shape.tolist() == grid[0, 1:].tolist()
        assert_same_bits(row[: len(expected)], expected)
        assert not row[len(expected) :].any()
        assert there.tolist() == [i < len(expected) for i in range(most + 3)]


def test_pil_images_and_tensors():
    image = photos(1)[0]
    expected = alone(image)[0]
    for form in (PIL.Image.fromarray(image), torch.from_numpy(image.copy())):
        assert_same_bits(pinfeed.Collate(field())([form])[0], expected)


def test_sizes_are_read_from_headers():
    images = photos(6)
    one = field()
    heights, widths = np.array([image.shape[:2] for image in images]).T
    _, grid = pinfeed.Collate(one)(images)
    rows, columns = one.grid_of(heights, widths)
    assert np.stack([rows, columns], 1).tolist() == grid[:, 1:].tolist()
    assert one.tokens(heights, widths).tolist() == (rows * columns // 4).tolist()
    assert one.tokens(int(heights[0]), int(widths[0])) == rows[0] * columns[0] // 4


augment = pinfeed.augment
VIEWS = [
    augment.RandomHorizontalFlip(),
    augment.CenterCrop(40),
    augment.RandomCrop(33, padding=4),
    augment.RandomZoomOut(p=1, side_range=(1, 2)),
    augment.Compose([augment.RandomVerticalFlip(), augment.RandomCrop((25, 70))]),
]


@pytest.mark.parametrize("view", VIEWS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_patches_equal_the_crop_of_the_image(view, seed):
    images = pinfeed.IndexedDataset(photos(6, seed))
    samples = images.__getitems__([3, 1, 0, 5])
    seen = pinfeed.Image(
        dtype=torch.uint8, output="HWC", augment=view, pad_value=0, sizes=True, rng_stream=seed
    )
    padded = pinfeed.Collate(seen, seed=7)(samples)
    expected = [
        alone(image[:height, :width])
        for image, (height, width) in zip(
            padded.values.numpy(), padded.lengths.tolist(), strict=True
        )
    ]
    values, grid = pinfeed.Collate(field(augment=view, rng_stream=seed), seed=7)(samples)
    assert_same_bits(values, np.concatenate([part for part, _ in expected]))
    assert grid.tolist() == [grid.tolist()[0] for _, grid in expected]


def test_images_of_one_sample_share_a_crop():
    view = augment.RandomCrop(35)
    image = photos(1)[0]
    clip = np.stack([image] * 3)
    rows = [[image, image], [image], clip, image]
    collate = pinfeed.Collate(field(augment=view, input="THWC", temporal=1), seed=1)
    values, grid = collate(pinfeed.IndexedDataset(rows).__getitems__([0, 1, 2, 3]))
    parts = values.split(grid.prod(1).tolist())
    assert torch.equal(parts[0], parts[1])
    assert not torch.equal(parts[0], parts[2])
    frames = parts[3].split(len(parts[0]))
    assert all(torch.equal(frame, frames[0]) for frame in frames)
    assert not torch.equal(frames[0], parts[4])


def test_a_geometry_can_resize_without_a_rule():
    view = augment.RandomResizedCrop(28)
    samples = pinfeed.IndexedDataset(photos(4)).__getitems__([0, 1, 2, 3])
    cut = pinfeed.Patches(7, MEAN, STD, merge=2, augment=view)
    values, grid = pinfeed.Collate(cut, seed=0)(samples)
    seen = pinfeed.Image(dtype=torch.uint8, output="HWC", augment=view, interpolation="bicubic")
    images = pinfeed.Collate(seen, seed=0)(samples).numpy()
    assert_same_bits(values, pinfeed.functional.patchify(images, 7, MEAN, STD, merge=2)[0])
    assert grid.tolist() == [[1, 4, 4]] * 4


# Fields, and the shapes of their outputs in a batch without images.
OF_TEXT = {
    "grid": (field(), [(0, 294), (0, 3)]),
    "ends": (field(cu_seqlens=True), [(0, 294), (0, 3), (1,)]),
    "padded": (
        pinfeed.Patches(7, MEAN, STD, max_patches=9, pad_to=9, mask=True, dtype=torch.bfloat16),
        [(0, 9, 147), (0, 2), (0, 9)],
    ),
    "bytes": (pinfeed.Patches(7, dtype=torch.uint8, max_patches=9, grid=False), [(0, 147)]),
    "gray": (pinfeed.Patches(7, 0.5, max_patches=9, input="HW"), [(0, 49), (0, 3)]),
    "one channel": (pinfeed.Patches(7, mean=(0.5,), std=(0.5,), max_patches=9), [(0, 49), (0, 3)]),
    "clips": (field(input="THWC"), [(0, 294), (0, 3)]),
}  # fmt: skip


@pytest.mark.parametrize(("patches", "shapes"), OF_TEXT.values(), ids=OF_TEXT)
@pytest.mark.parametrize("samples", [[[], []], [None], [None, [], ()]], ids=str)
def test_a_batch_without_images(patches, shapes, samples):
    result = pinfeed.Collate(patches)(samples)
    parts = result if isinstance(result, tuple) else (result,)
    assert [tuple(part.shape) for part in parts] == shapes
    size = (30, 40, 1 if shapes[0] == (0, 49) else 3)[: 2 if patches.input == "HW" else 3]
    image = np.ones((2, *size) if patches.input == "THWC" else size, np.uint8)
    others = pinfeed.Collate(patches)([*samples, image])
    others = others if isinstance(others, tuple) else (others,)
    for part, other in zip(parts, others, strict=True):
        assert part.shape[1:] == other.shape[1:]
        assert part.dtype == other.dtype
        if part.numel():  # offset of the first image's patches
            assert part[0] == other[0] == 0


def test_none_beside_images_in_optional_entries():
    collate = pinfeed.Collate({"image": field(grid="grid").allow_missing()})
    image = photos(1)[0]
    for samples in ([None, image], [image, None], [[], image]):
        batch = collate([{"image": sample} for sample in samples])
        assert_same_bits(batch["image"], alone(image)[0])
    assert collate([{"image": None}, {"image": None}]) == {}
    assert collate([{"image": []}, {"image": None}])["grid"].shape == (0, 3)


@pytest.mark.processes
def test_batches_without_images_from_workers():
    samples = [
        {"image": image, "id": i} for i, image in enumerate([None, [], *photos(2), [], None])
    ]
    loader = DataLoader(
        samples, 2, num_workers=2, collate_fn=pinfeed.Collate({"image": field(grid="grid")})
    )
    assert [len(batch["grid"]) for batch in loader] == [0, 2, 0]


GOOD = np.zeros((30, 40, 3), np.uint8)


@pytest.mark.parametrize(
    ("samples", "arguments", "error", "words"),
    [
        ([GOOD, [GOOD, GOOD[:1]]], {"min_side": 7}, ValueError, ["sample 1[1]", "at least 7 pixels"]),
        ([GOOD, np.zeros((5, 2000, 3), np.uint8)], {}, ValueError, ["sample 1", "200 times", "crop"]),
        ([GOOD, GOOD[..., 0]], {}, ValueError, ["sample 1", "(30, 40)", '.convert("RGB")']),
        ([[GOOD], [np.zeros((30, 40, 4), np.uint8)]], {}, ValueError, ["sample 1[0]", "3 channels"]),
        ([GOOD[..., :1]], {}, ValueError, ["expected 3 channels, one for each value of mean and std, got 1"]),
        ([GOOD.astype(np.int64)], {}, TypeError, ["int64", ".astype(np.uint8)"]),
        ([np.zeros((3, 30, 40, 3), np.uint8), np.zeros((0, 30, 40, 3), np.uint8)], {"input": "THWC"},
            ValueError, ["sample 1", "at least one frame"]),
        ([[], [np.zeros((0, 30, 40, 3), np.uint8), np.zeros((2, 30, 40, 3), np.uint8)]], {"input": "THWC"},
            ValueError, ["sample 1[0]", "at least one frame"]),
        ([GOOD, np.zeros((35, 41, 3), np.uint8)], {"min_pixels": None, "max_pixels": None},
            ValueError, ["sample 0", "multiples of 14", "max_pixels"]),
        ([GOOD], {"pad_to": 5}, ValueError, ["at most pad_to=5 patches", "max_patches"]),
        (["photo.png"], {}, TypeError, ["sample 0", "str"]),
    ],
    ids=str,
)  # fmt: skip
def test_bad_images(samples, arguments, error, words):
    check(lambda: pinfeed.Collate(field(**arguments))(samples), error, *words)


RESIZE = augment.RandomResizedCrop(28)
BAD_ARGUMENTS = {
    "a mask": (lambda: field(mask=True), ValueError, "pass pad_to"),
    "ends": (lambda: field(pad_to=9, cu_seqlens=True), ValueError, "row of its own"),
    "clips": (lambda: field(pad_to=9, input="THWC"), ValueError, "clips"),
    "a grid": (lambda: field(grid=3), TypeError, "Patches: grid must be"),
    "tokens": (lambda: field(augment=augment.RandomCrop(20)).tokens(30, 40), ValueError, "augment changes the size", "patch_grid"),
    "a resize": (lambda: field(augment=RESIZE), ValueError, "RandomResizedCrop", "max_pixels"),
    "boxes": (lambda: field(augment=augment.RandomIoUCrop()), ValueError, "boxes", "RandomCrop"),
    "a number": (lambda: field(augment=3), TypeError, "augment must be"),
    "a deviation": (lambda: pinfeed.Patches(7, 0.5, 0), ValueError, "std must be positive"),
    "whole batches": (lambda: list(pinfeed.DeviceLoader([torch.zeros(1, 30, 40, 3)], "cpu", fields=field())), TypeError, "collate_fn", "leave it out of fields"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments(case):
    check(*BAD_ARGUMENTS[case])
    assert field(augment=augment.RandomVerticalFlip()).tokens(30, 40) == field().tokens(30, 40)
