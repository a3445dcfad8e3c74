"""Random draws: the entries and streams that they depend on, their distributions, and the reported crops."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import pinfeed
from crops import batch_and_crops
from messages import check
from pinfeed import augment

VIEW = augment.Compose([augment.RandomResizedCrop(8), augment.RandomHorizontalFlip()])
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
NAMES = np.random.default_rng(1).permutation(2**40 + np.arange(40))


# Reported crops


@given(
    st.lists(st.tuples(*[st.integers(1, 15)] * 2), min_size=1, max_size=4),
    st.tuples(*[st.integers(1, 12)] * 2),
    st.integers(0, 5),
    st.integers(0, 2**40),
)
def test_points_follow_every_pixel(sizes, size, padding, seed):
    view = augment.Compose(
        [
            augment.RandomVerticalFlip(),
            augment.RandomCrop(size, padding=padding, pad_if_needed=True),
            augment.RandomHorizontalFlip(),
            augment.CenterCrop([-(-n // 2) for n in size]),
        ]
    )
    images = [
        1 + np.arange(height * width, dtype=np.uint8).reshape(height, width)
        for height, width in sizes
    ]
    field = pinfeed.Image(input="HW", dtype=torch.uint8, augment=view, interpolation="bilinear")
    batch, windows = batch_and_crops(field, images, seed)
    for image, seen, window in zip(images, batch[:, 0], windows.tolist(), strict=True):
        top, left, height, width, mirrored_rows, mirrored_columns = map(int, window)
        assert (height, width) == seen.shape
        if mirrored_rows:
            seen = seen.flip(0)
        if mirrored_columns:
            seen = seen.flip(1)
        around = np.pad(image, 40)[40 + top : 40 + top + height, 40 + left : 40 + left + width]
        assert np.array_equal(seen, around)


# Named entries


def named_samples():
    return [
        {"image": image, "id": name} for image, name in zip(IMAGES, NAMES.tolist(), strict=True)
    ]


def collate_by_name(seed=5):
    image = pinfeed.Image(dtype=torch.uint8, augment=VIEW)
    return pinfeed.Collate({"image": image}, seed=seed, id_key="id")


def by_name(batches):
    return {
        int(name): image.tolist()
        for batch in batches
        for name, image in zip(batch["id"], batch["image"], strict=True)
    }


@pytest.fixture(scope="module")
def seen_by_name():
    """Returns the crop of each image, by name, where the name is the index."""
    field = pinfeed.Image(dtype=torch.uint8, augment=VIEW)
    samples = pinfeed.IndexedDataset(IMAGES).__getitems__(range(40))
    samples.indices = NAMES
    batch = pinfeed.Collate(field, seed=5)(samples)
    return dict(zip(NAMES.tolist(), batch.tolist(), strict=True))


batch_sizes = pytest.mark.parametrize("batch_size", [1, 7])


@batch_sizes
def test_an_entry_identifies_the_sample(seen_by_name, batch_size):
    rows = pinfeed.ArrayDataset({"image": IMAGES, "id": NAMES})
    for dataset in (named_samples(), rows, pinfeed.IndexedDataset(named_samples())):
        loader = DataLoader(dataset, batch_size, shuffle=True, collate_fn=collate_by_name())
        assert by_name(loader) == seen_by_name


@batch_sizes
def test_crops_do_not_depend_on_ranks_or_resuming(seen_by_name, batch_size):
    result, collate = {}, collate_by_name()
    for rank in range(2):
        streams = [
            pinfeed.StreamDataset(named_samples(), 9, uneven="keep", rank=rank, world_size=2)
            for _ in range(2)
        ]
        begun, resumed = (DataLoader(stream, batch_size, collate_fn=collate) for stream in streams)
        iterator = iter(begun)
        result |= by_name([next(iterator), next(iterator)])
        streams[1].load_state_dict(streams[0].state_dict())
        rest = by_name(resumed)
        assert len(rest) == 20 - 2 * batch_size
        result |= rest
    assert result == seen_by_name


def test_copies_keep_the_entry(seen_by_name):
    collate = collate_by_name()
    for copied in (pickle.loads(pickle.dumps(collate)), copy.deepcopy(collate)):
        assert by_name([copied(named_samples())]) == seen_by_name
    assert repr(pinfeed.Collate(seed=1, id_key="id")) == "Collate(seed=1, id_key='id')"


def test_samples_with_one_name_get_equal_crops():
    batch = collate_by_name()([{"image": IMAGES[0], "id": -1}] * 3)
    assert torch.equal(batch["image"][0], batch["image"][2])


NAMELESS = [
    (pinfeed.ArrayDataset({"image": IMAGES}).__getitems__([1]), ValueError, "sample 0 lacks it"),
    ([{"image": IMAGES[0], "id": 1}, {"image": IMAGES[0]}], ValueError, "sample 1 lacks it", "add"),
    ([IMAGES[0]], ValueError, "id_key='id'", "leave out id_key and wrap", "IndexedDataset"),
    ([{"image": IMAGES[0], "id": "a"}], TypeError, "entry ['id'] of sample 0", "integer, got 'a'"),
    ([{"image": IMAGES[0], "id": 2**63}], ValueError, "at most 9223372036854775807"),
]


@pytest.mark.parametrize(("samples", "error", "words"), [(s, e, w) for s, e, *w in NAMELESS])
def test_samples_without_a_name_raise(samples, error, words):
    check(lambda: collate_by_name()(samples), error, *words)


@pytest.mark.parametrize("seed", [3, None])
def test_streams_draw_independently(seed):
    count, size = 100_000, 200
    positions = np.stack(np.mgrid[:size, :size], -1).astype(np.uint8)  # the value of each pixel
    images = np.broadcast_to(positions, (count, *positions.shape))
    options = {"dtype": torch.uint8, "augment": augment.RandomCrop(1)}
    fields = {
        key: pinfeed.Image(**options, rng_stream=stream)
        for key, stream in zip("abc", (0, 1, 1), strict=True)
    }
    torch.manual_seed(0)
    rows = pinfeed.ArrayDataset(dict.fromkeys(fields, images)).__getitems__(range(count))
    batch = pinfeed.Collate(fields, seed=seed)(rows)
    assert torch.equal(batch["b"], batch["c"])
    numbers = [batch[key][:, axis].flatten().numpy() for key in "ab" for axis in (0, 1)]
    assert np.abs(np.corrcoef(numbers)[~np.eye(4, dtype=bool)]).max() < 4 / count**0.5
    shares = np.bincount(numbers[2], minlength=size).cumsum() / count
    # Kolmogorov-Smirnov: 1 seed in 1,000 is beyond this.
    assert np.abs(shares - np.arange(1, size + 1) / size).max() < 1.95 / count**0.5
