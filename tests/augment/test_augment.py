"""Crops and flips of images in a `Collate`: exact pixels, and draws that depend on the sample."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

import pinfeed
import reference
from arrays import as_kind, assert_same_bits, views
from crops import ARRAYS, COUNT, DATASETS, IMAGES, VIEW, by_index, crops_of_epochs, new_collate
from messages import check
from pinfeed import augment

pytestmark = pytest.mark.kernels

MODES = ["constant", "edge", "reflect"]
DTYPES = ["float32", "float16", "bfloat16", "uint8"]
RESIZED = augment.Compose([augment.RandomResizedCrop(8), augment.RandomHorizontalFlip()])

small = st.integers(1, 9)
pairs = st.tuples(small, small)


def augmented(image, steps, seed, epoch, index):
    """Applies the steps to an (H, W, C) image, in plain NumPy."""
    for number, (kind, arguments) in enumerate(steps):
        draws = reference.uniform(seed, epoch, index, number)
        if kind == "crop":
            image = reference.random_crop(image, draws, **arguments)
        elif kind == "center":
            image = reference.center_crop(image, **arguments)
        elif draws[0] < arguments["p"]:
            image = image[:, ::-1] if kind == "columns" else image[::-1]
    return image


def geometry(steps):
    kinds = {
        "crop": augment.RandomCrop,
        "center": augment.CenterCrop,
        "rows": augment.RandomVerticalFlip,
        "columns": augment.RandomHorizontalFlip,
    }
    return augment.Compose([kinds[kind](**arguments) for kind, arguments in steps])


@st.composite
def flips(draw):
    count = draw(st.integers(0, 2))
    p = st.sampled_from([0, 0.5, 1])
    return [(draw(st.sampled_from(["rows", "columns"])), {"p": draw(p)}) for _ in range(count)]


@st.composite
def step_lists(draw, channels):
    """Draws flips, a crop that may pad, flips, and optionally a smaller crop."""
    size = draw(pairs)
    if draw(st.booleans()):
        crop = "center", {"size": size}
    else:
        arguments = {"size": size, "padding": draw(st.tuples(*[st.integers(0, 4)] * 4))}
        arguments["pad_if_needed"] = True
        arguments["padding_mode"] = draw(st.sampled_from(MODES))
        byte = st.integers(0, 255)
        arguments["fill"] = draw(
            st.one_of(byte, st.lists(byte, min_size=channels, max_size=channels))
        )
        crop = "crop", arguments
    steps = [*draw(flips()), crop, *draw(flips())]
    if draw(st.booleans()):
        smaller = tuple(draw(st.integers(1, n)) for n in size)
        steps.append((draw(st.sampled_from(["crop", "center"])), {"size": smaller}))
    return steps


def can_be_reflected(image, steps):
    """Returns whether every padding is smaller than its side: np.pad repeats the reflection, torch raises."""
    (arguments,) = (a for _, a in steps if "padding_mode" in a)
    left, top, right, bottom = arguments["padding"]
    return all(
        max(sides) + max(expected - side - sum(sides), 0) < side
        for expected, side, sides in zip(
            arguments["size"], image.shape, ((top, bottom), (left, right)), strict=False
        )
    )


@st.composite
def cases(draw):
    """Draws images of any sizes and strides, the steps, and the other arguments of Image."""
    input = draw(st.sampled_from(["HWC", "CHW", "HW"]))
    channels = draw(st.integers(1, 5)) if "C" in input else 1
    steps = draw(step_lists(channels))
    images = []
    for _ in range(draw(st.integers(1, 4))):
        sizes = dict(zip("HWC", (*draw(pairs), channels), strict=True))
        shape = tuple(sizes[letter] for letter in input)
        kind = draw(st.sampled_from(["ndarray", "tensor"]))
        images.append(as_kind(kind, draw(views(shape, mirrored=kind != "tensor"))))
    arguments = {"input": input, "dtype": draw(st.sampled_from(DTYPES))}
    arguments["output"] = draw(st.sampled_from(["CHW", "HWC"]))
    return images, steps, arguments


def pixels(image, input):
    image = np.asarray(image)
    return image[..., np.newaxis] if input == "HW" else reference.permute(image, input, "HWC")


@given(cases(), st.integers(0, 2**70), st.integers(0, 5))
def test_any_geometry(isa, case, seed, epoch):
    images, steps, arguments = case
    of_pixels = [pixels(image, arguments["input"]) for image in images]
    if any(a.get("padding_mode") == "reflect" for _, a in steps):
        assume(all(can_be_reflected(image, steps) for image in of_pixels))
    constants = {} if arguments["dtype"] == "uint8" else {"mean": 0.4, "std": 0.25}
    options = arguments | {"dtype": getattr(torch, arguments["dtype"])}
    image = pinfeed.Image(**constants, **options, augment=geometry(steps))
    collate = pinfeed.Collate(image, seed=seed)
    collate.set_epoch(epoch)
    samples = pinfeed.IndexedDataset(images).__getitems__(list(range(len(images))))
    expected = [augmented(image, steps, seed, epoch, i) for i, image in enumerate(of_pixels)]
    assert_same_bits(
        collate(samples),
        reference.images(
            np.stack(expected),
            output="N" + arguments["output"],
            dtype=arguments["dtype"],
            **constants,
        ),
    )


@pytest.mark.parametrize("image_size", range(1, 8))
def test_center_crop_of_every_size(image_size):
    image = np.arange(1, image_size * 9 + 1, dtype=np.uint8).reshape(image_size, 9, 1)
    for size in range(1, 12):
        field = pinfeed.Image(
            input="HWC", output="HWC", dtype=torch.uint8, augment=augment.CenterCrop((size, 4))
        )
        expected = reference.center_crop(image, (size, 4))
        assert np.array_equal(pinfeed.Collate(field)([image])[0], expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [0, 3, (2, 1), (1, 2, 3, 4)], ids=str)
def test_padding_around_an_image(mode, padding):
    image = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    pad = augment.Pad(padding, (7, 8, 9), mode)
    numbers = [padding] if isinstance(padding, int) else padding
    left, above, right, below = (list(numbers) * 4)[:4]
    border = {"fill": (7, 8, 9), "padding_mode": mode}
    sides = (above, below), (left, right)
    expected = reference.padded_image(image, sides, **border)
    options = {"output": "HWC", "dtype": torch.uint8}
    for before in (augment.CenterCrop((6, 5)), augment.Resize((6, 5)), flip(1)):
        enlarged = image.repeat(2, 0) if isinstance(before, augment.Resize) else image
        seen = pinfeed.Collate(pinfeed.Image(augment=before, **options))([enlarged])[0].numpy()
        steps = [pad] if isinstance(before, augment.CenterCrop) else [before, pad]
        field = pinfeed.Image(augment=augment.Compose(steps), **options)
        actual = pinfeed.Collate(field)([enlarged])[0].numpy()
        assert np.array_equal(actual, reference.padded_image(seen, sides, **border))
    cropped = augment.Compose([pad, augment.RandomCrop((4, 3))])
    field = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=cropped)
    batch = pinfeed.Collate(field)([image] * 20).numpy()
    windows = np.lib.stride_tricks.sliding_window_view(expected, (4, 3), (0, 1))
    windows = {window.tobytes() for window in windows.transpose(0, 1, 3, 4, 2).reshape(-1, 4, 3, 3)}
    assert {one.tobytes() for one in batch} <= windows
    if mode == "reflect" and padding == 3:
        check(lambda: pinfeed.Collate(field)([image[:3]]), ValueError, "(3, 5) has too few pixels")


@pytest.mark.parametrize("mode", ["edge", "reflect"])
@pytest.mark.parametrize("resized", [False, True])
def test_center_crops_that_mirror(mode, resized):
    image = np.random.default_rng(0).integers(0, 256, (7, 6, 3), dtype=np.uint8)
    for size in itertools.product(range(1, 14), (5, 8, 11)):
        crop = augment.CenterCrop(size, padding_mode=mode)
        steps = [augment.Resize((7, 6)), crop] if resized else [crop]
        samples = [image.repeat(2, 0).repeat(3, 1)] if resized else [image]
        field = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=augment.Compose(steps))
        result = pinfeed.Collate(field)(samples)[0].numpy()
        seen = pinfeed.Image(output="HWC", dtype=torch.uint8, augment=steps[0])
        seen = pinfeed.Collate(seen)(samples)[0].numpy() if resized else image
        lacking = [max(want - has, 0) for want, has in zip(size, seen.shape[:2], strict=True)]
        sides = [(lack // 2, -(-lack // 2)) for lack in lacking]
        wide = np.pad(seen, [*sides, (0, 0)], mode=mode)
        assert np.array_equal(result, reference.center_crop(wide, size))
    small = pinfeed.Image(augment=augment.CenterCrop((20, 2), padding_mode="reflect"))
    check(lambda: pinfeed.Collate(small)([image]), ValueError, "image of (7, 6)", "too few pixels")
    empty = pinfeed.Image(augment=augment.CenterCrop(2, padding_mode="edge"))
    check(lambda: pinfeed.Collate(empty)([image[:0]]), ValueError, "no pixel to repeat")


# Random draws depend only on the seed, the epoch and the sample.


def test_subsets_keep_row_indices():
    loader = DataLoader(Subset(ARRAYS, [30, 4, 17]), 2, collate_fn=new_collate())
    assert by_index(loader) == {i: crops_of_epochs()[0][i] for i in (30, 4, 17)}


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "context"), [("rows", "fork"), ("indexed", "spawn")])
def test_persistent_workers_follow_set_epoch(dataset, context):
    collate = new_collate()
    options = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": context}
    loader = DataLoader(DATASETS[dataset], 7, collate_fn=collate, **options)
    for epoch in (0, 1, 0):
        collate.set_epoch(epoch)
        assert by_index(loader) == crops_of_epochs()[epoch]


def test_copies_have_their_own_epochs():
    collate = new_collate()
    collate.set_epoch(1)
    copies = [pickle.loads(pickle.dumps(collate)), copy.deepcopy(collate)]
    collate.set_epoch(0)
    assert [copied.epoch for copied in copies] == [1, 1]
    rows = ARRAYS.__getitems__(range(COUNT))
    for copied in copies:
        assert by_index([copied(rows)]) == crops_of_epochs()[1]
    assert by_index([collate(rows)]) == crops_of_epochs()[0]


def test_from_numpy_resumes_with_the_crops_of_the_epoch():
    def loader():
        fields = {"image": pinfeed.Image(dtype=torch.uint8, augment=VIEW)}
        arrays = {"image": IMAGES, "index": np.arange(COUNT)}
        return pinfeed.from_numpy(arrays, 6, shuffle=True, seed=0, fields=fields, device="cpu")

    saved = loader()
    assert by_index(saved) == crops_of_epochs()[0]
    first = next(iter(saved))["index"].tolist()
    state = saved.batch_sampler.state_after(1)
    resumed = loader()
    resumed.batch_sampler.load_state_dict(state)
    left = {index: image for index, image in crops_of_epochs()[1].items() if index not in first}
    assert by_index(resumed) == left


@pytest.mark.parametrize("view", [VIEW, RESIZED], ids=["crop", "resize"])
@pytest.mark.parametrize("color", [None, augment.ColorJitter((2, 2))])
@pytest.mark.parametrize("seed", [5, None])
def test_entries_with_equal_geometry_share_its_draws_but_not_color_draws(seed, color, view):
    options = {"dtype": torch.uint8, "interpolation": "nearest"}
    mask = pinfeed.Image(input="HW", augment=view, **options)
    image = pinfeed.Image(augment=view if color is None else [view, color], **options)
    fields = {"image": image, "deep": [{"mask": mask}]}
    rows = pinfeed.ArrayDataset({"image": IMAGES, "deep": [{"mask": IMAGES[..., 1]}]})
    batch = pinfeed.Collate(fields, seed=seed)(rows.__getitems__(range(40)))
    seen = batch["deep"][0]["mask"][:, 0]
    assert torch.equal(
        batch["image"][:, 1], seen if color is None else seen.int().mul(2).clamp(max=255).byte()
    )
    assert len(seen.flatten(1).unique(dim=0)) == 40


@pytest.mark.parametrize("flips", [1, 2, 3])
def test_flips_work_at_any_position(flips):
    others = [crop(5), augment.ColorJitter(0.5), augment.RandomErasing(1)]
    rows = pinfeed.ArrayDataset(IMAGES).__getitems__(range(20))
    early, late = (
        pinfeed.Collate(pinfeed.Image(augment=views), seed=3)(rows)
        for views in ([others[0], flip(0.5), *others[1:]], [*others[:flips], flip(0.5), *others[flips:]])
    )  # fmt: skip
    assert torch.equal(early, late)


def test_without_a_seed_torch_seeds_the_draws():
    rows = ARRAYS.__getitems__([3] * 40)
    collate = new_collate(seed=None)
    collate.set_epoch(4)  # has no effect
    batches = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        batches.append([collate(rows)["image"], collate(list(rows))["image"]])
    assert all(map(torch.equal, batches[0], batches[1]))
    assert not torch.equal(batches[0][0], batches[0][1])
    assert not torch.equal(batches[0][0], batches[2][0])
    assert len(batches[0][0].flatten(1).unique(dim=0)) > 20  # one sample, drawn forty times


REPRS = [
    "Compose([RandomCrop(8, padding=3), CenterCrop(4), RandomHorizontalFlip()])",
    "Compose([Resize(8, max_size=9), CenterCrop(8)])",
    "RandomResizedCrop((8, 8), scale=(0.5, 1.0))",
    "ColorJitter(brightness=(0.5, 1.5))",
    "RandomErasing(p=0.25)",
]


@pytest.mark.parametrize("text", REPRS)
def test_reprs(text):
    assert repr(eval(text, vars(augment))) == text


crop, flip = augment.RandomCrop, augment.RandomHorizontalFlip


def test_hints_of_errors_work():
    small = np.ones((4, 5, 3), np.uint8)
    for view in (crop(6, pad_if_needed=True), crop(9, 4, padding_mode="edge")):
        batch = pinfeed.Collate(pinfeed.Image(augment=view))([small])
        assert batch.shape[2:] == (view.size, view.size)
    filled = pinfeed.Collate(pinfeed.Image(augment=crop(3, 1, True)))([small[:0]])
    assert filled.eq(0).all()


def test_a_seed_needs_sample_indices():
    samples = [{"image": image} for image in IMAGES]
    words = "the index of each sample", "IndexedDataset"
    check(lambda: new_collate()(samples), ValueError, *words)
    assert pinfeed.Collate(seed=1)([1, 2]).tolist() == [1, 2]  # nothing is random


CERTAIN = [
    augment.Compose([augment.Resize(6), augment.CenterCrop(4), flip(1)]),
    augment.ColorJitter((2, 2)), augment.ColorJitter(),
    augment.RandomErasing(0),
]  # fmt: skip
RANDOM = [
    crop(2), augment.RandomResizedCrop(2), flip(0.1),
    augment.ColorJitter(0.1), augment.ColorJitter(0, (0, 2)), augment.ColorJitter((2, 2), (2, 2)),
    augment.RandomErasing(0.1),
]  # fmt: skip


def test_deterministic_steps_need_no_index():
    field, before = pinfeed.Image(augment=CERTAIN), torch.get_rng_state()
    one, other = (pinfeed.Collate(field, seed=seed)([*IMAGES]) for seed in (1, None))
    assert_same_bits(one, other)
    assert torch.equal(torch.get_rng_state(), before)
    for random in RANDOM:
        collate = pinfeed.Collate(pinfeed.Image(augment=random), seed=1)
        check(lambda collate=collate: collate([*IMAGES]), ValueError, "the index of each sample")


@pytest.mark.parametrize("size", [(7, 8), (8, 7)])
def test_entries_that_share_a_geometry_need_images_of_one_size(size):
    height, width = size
    sample = {"image": IMAGES[0], "mask": IMAGES[0, :height, :width]}
    samples = [sample | {"mask": IMAGES[0]}, sample]

    view = crop(4)

    def batch(of_mask):
        fields = {"image": pinfeed.Image(augment=view), "mask": pinfeed.Image(augment=of_mask)}
        return pinfeed.Collate(fields)(samples)

    words = "entry ['mask'] of sample 1: expected an image of (8, 8) as in entry ['image']"
    check(lambda: batch(view), ValueError, words, f"got {size}", "create a second geometry")
    assert batch(crop(4))["mask"].shape == (2, 3, 4, 4)


def test_errors_name_the_index():
    samples = pinfeed.IndexedDataset([IMAGES[0]] * 7 + [IMAGES[0][:5]]).__getitems__([2, 7])
    collate = pinfeed.Collate(pinfeed.Image(augment=crop(8)), seed=0)
    check(lambda: collate(samples), ValueError, "sample 1 of the batch (index 7)")


PARTS = {"crop": VIEW, "color": augment.ColorJitter(0.5), "erase": augment.RandomErasing(1)}


@pytest.mark.parametrize("part", PARTS)
def test_crops_drawn_on_the_host_are_normalized_on_the_device(part):
    rows = pinfeed.ArrayDataset(IMAGES).__getitems__([3, 1, 2])
    drawn, constants = {"augment": PARTS[part]}, {"mean": 0.4, "std": 0.25}

    def collated(**options):
        return pinfeed.Collate(pinfeed.Image(**drawn, **options), seed=1)(rows)

    def loaded(**options):
        (batch,) = pinfeed.DeviceLoader(batches, "cpu", fields=pinfeed.Image(**options))
        return batch

    batches = [collated(dtype=torch.uint8, output="HWC")]
    words = ["augment changes the samples of a Collate, but this is already a batch"]
    words += ['Image(augment=..., dtype=torch.uint8, output="HWC") to the Collate']
    words += ["the same Image without augment to fields"]
    words += ["RandomErasing then writes bytes"] * (part == "erase")
    check(lambda: loaded(**drawn), TypeError, *words)
    batch = loaded(**constants)
    if part == "erase":  # was byte 0
        drawn["augment"] = augment.RandomErasing(1, value=-0.4 / 0.25)
    assert_same_bits(batch, collated(**constants))


FRACTIONS = {
    "a step": lambda dtype, fill: pinfeed.Image(dtype=dtype, augment=augment.Pad(1, fill=fill)),
    "channels": lambda dtype, fill: pinfeed.Image(dtype=dtype, augment=augment.Pad(1, fill=(0, fill, 1))),
    "a zoom": lambda dtype, fill: pinfeed.Image(dtype=dtype, augment=[augment.RandomHorizontalFlip(), augment.RandomZoomOut(fill=fill)]),
    "the image": lambda dtype, fill: pinfeed.Image(dtype=dtype, augment=augment.Pad(1), fill=fill),
}  # fmt: skip


@pytest.mark.parametrize("case", FRACTIONS)
def test_a_fractional_fill_around_integers_raises(case):
    make = FRACTIONS[case]
    words = "fill must be an integer", "got 0.5; round it"
    check(lambda: make(torch.uint8, 0.5), ValueError, *words)
    make(torch.uint8, 7)
    make(torch.uint8, np.float32(7))
    make(torch.float32, 0.5)  # for float images
