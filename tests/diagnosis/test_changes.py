"""Recommended changes give the same batches."""

import copy
import time

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate
from torchvision import transforms as v1
from torchvision.datasets import VisionDataset
from torchvision.transforms import v2

import pinfeed
from pinfeed.diagnosis.batch_values import have_equal_values
from sleeping import Sleeping, offered

IMAGES = torch.ones(2, 3, 4, 4)


class Attributes(dict):
    """A batch whose parts are also attributes."""

    @property
    def x(self):
        return self["x"]


class Incomparable:
    def __eq__(self, other):
        raise NotImplementedError

    __hash__ = None


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        ({"x": np.array(["a"])}, {"x": np.array(["a"])}, True),
        ([np.array(["a"], object)], [np.array(["b"], object)], False),
        (np.array(["NaT"], "M8[s]"), np.array(["NaT"], "M8[s]"), True),
        (np.array([np.nan]), np.array([np.nan]), True),
        (np.zeros(2), np.zeros(2, np.float32), False),
        (torch.tensor([torch.nan]), torch.tensor([torch.nan]), True),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), False),  # without ==
        ([torch.ones(2), 1], (torch.ones(2), 1), True),  # torch turns tuples into lists
        ({"x": 1}, Attributes({"x": 1}), False),
        (torch.ones(2), torch.ones(2).requires_grad_(), False),
        (IMAGES, IMAGES.contiguous(memory_format=torch.channels_last), False),
        (Incomparable(), Incomparable(), False),
    ],
)
def test_equality_of_batches(one, other, is_equal):
    assert have_equal_values(one, other) is is_equal


class Folder:
    """Like torchvision's ImageFolder."""

    def __init__(self, transform, key="transform"):
        setattr(self, key, transform)
        self.key = key

    def __len__(self):
        return 12

    def __getitem__(self, index):
        pixels = np.random.default_rng(index).integers(0, 256, (60, 80, 3), np.uint8)
        transform = getattr(self, self.key)
        image = PIL.Image.fromarray(pixels)
        return (transform(image) if transform else image), index % 3


class Vision(VisionDataset):
    """Like torchvision's VOCDetection, whose transforms are a pair."""

    __len__ = Folder.__len__

    def __getitem__(self, index):
        return self.transforms(Folder(None)[index][0], index)


class VisionFolder(VisionDataset):
    """Like torchvision's ImageFolder, which stores a pair of transforms that its samples don't use."""

    __len__, __getitem__, key = Folder.__len__, Folder.__getitem__, "transform"


class Planes(Folder):
    """A dataset of channels-first tensors."""

    def __getitem__(self, index):
        return self.transform(v1.functional.pil_to_tensor(Folder(None)[index][0])), index % 3


class Masks(Folder):
    """A dataset of images, each with a mask, and maybe the same random draws for both."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"image": image, "mask": torch.full((32, 32), label)}


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
END = [v1.ToTensor(), v1.Normalize(MEAN, STD)]
RESIZED = [v1.Resize(40), v1.CenterCrop(32), *END]
RANDOM = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), *END])
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
# Datasets, the path of the transform, and whether its values stay the same.
TRANSFORMS = {
    "a folder": (Folder(v1.Compose(RESIZED)), "transform", True),
    "a subset": (Subset(Subset(Folder(v1.Compose(RESIZED)), range(10)), range(8)), "dataset.dataset.transform", True),
    "a vision folder": (VisionFolder("", transform=v1.Compose(RESIZED)), "transform", True),
    "random": (Folder(RANDOM), "transform", False),
    "a rest": (Folder(v1.Compose([v1.RandomCrop(32), v1.RandAugment(), *END])), "transform", False),
    "a rest without draws": (Folder(v1.Compose([v1.Grayscale(3), *RESIZED])), "transform", True),
    "transforms": (Folder(v2.Compose([v2.CenterCrop(32), *FLOATS]), "transforms"), "transforms", True),
    "a pair": (Vision("", transform=v1.Compose(RESIZED)), "transforms.transform", True),
    "tensors": (Planes(v2.Compose([v2.CenterCrop(32), *FLOATS])), "transform", True),
    "a mask": (Masks(v1.Compose(RESIZED)), "transform", True),
}  # fmt: skip


def of_transform(dataset, **options):
    _, changes = offered(DataLoader(dataset, 4, **options), workers=False)
    return changes.get("the transform as a field")


@pytest.mark.parametrize(("dataset", "path", "is_same"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_becomes_a_field(dataset, path, is_same):
    """The recommended code runs unchanged."""
    change = of_transform(dataset)
    assert change.code.startswith(f"dataset.{path}, image = ")
    assert "Image(" in change.note
    assert ("draws" in change.note) == (not is_same)
    expected = [*DataLoader(dataset, 4)]
    names = {"dataset": copy.deepcopy(dataset), "pinfeed": pinfeed}
    names["DataLoader"] = lambda _, collate_fn: DataLoader(
        names["dataset"], 4, collate_fn=collate_fn
    )
    conversion, loader = change.code.rsplit("; ", 1)
    exec(conversion, names)
    for batch, reference in zip(eval(loader, names), expected, strict=True):
        (images, targets), (their_images, their_targets) = (
            one.values() if isinstance(one, dict) else one for one in (batch, reference)
        )
        assert images.shape == their_images.shape
        assert targets.dtype == their_targets.dtype
        assert torch.equal(targets, their_targets)
        assert not is_same or (images - their_images).abs().max() <= 2.02 / 255 / min(STD)
    # A dataset that uses the code has nothing left to convert.
    collate = eval(loader.partition("collate_fn=")[2][:-1], names)
    assert not of_transform(names["dataset"], collate_fn=lambda samples: collate(samples))


STAY = {
    "another transform": Folder(v1.Compose([*RESIZED[1:3], v1.Lambda(lambda image: image * 2)])),
    "a function": Folder(lambda image: END[0](image)),
    "none": TensorDataset(torch.ones(9, 2)),
    "a mask that may move": Masks(RANDOM),
    "of image and target": Vision("", transforms=v2.Compose([v2.CenterCrop(32), *FLOATS])),
}


@pytest.mark.parametrize("dataset", STAY.values(), ids=STAY)
def test_unsupported_transforms_stay(dataset):
    assert not of_transform(dataset)


def slow(samples):
    time.sleep(0.01)
    return default_collate(samples)


def doubled(samples):
    return slow([2 * sample for sample in samples])


DRAWN = Sleeping(0.001, get=lambda _: np.random.random(4))  # noqa: NPY002
ZEROS = DataLoader(TensorDataset(torch.zeros(64)), batch_size=1)
STACKED = [pinfeed.Stack(), None]
EQUAL, STAYS = "had equal values", "persistent workers don't see later changes"
# Loaders by the change that is offered, and words of its note; None if it isn't offered.
OFFERED = {
    # Only the user knows whether each sample is always the same.
    "samples decoded once": (DataLoader(Sleeping(), 2), "about 0.00154 MB"),  # 64 of 16 bytes and 8
    "2 workers": (DataLoader(Sleeping(length=12), 4), STAYS),
    "persistent workers": (DataLoader(Sleeping(0.0005, 4), 2, num_workers=1), STAYS),
    "batches by pinfeed.Collate": (DataLoader(Sleeping(0.001), 8, collate_fn=slow), EQUAL),
    "batches by pinfeed.Collate, drawn": (DataLoader(DRAWN, 8, collate_fn=slow), EQUAL),
    "batches by pinfeed.Collate, doubled": (DataLoader(DRAWN, 8, collate_fn=doubled), None),
    "the transform as a field": (DataLoader(Folder(RANDOM), 4), "image is then Image("),
    "the transform as a field, other batches": (DataLoader(Folder(RANDOM), 4, collate_fn=list), None),
    "rows read natively": (pinfeed.DeviceLoader(ZEROS, "cpu"), EQUAL),
    # The last rows are equal, but of other dtypes.
    "rows read natively, dtypes": (DataLoader(TensorDataset(torch.arange(9.0), torch.arange(9))), EQUAL),
    # The loop gets the batches of the fields.
    "rows read natively, fields": (pinfeed.DeviceLoader(ZEROS, "cpu", [pinfeed.Stack()]), None),
    "the transform as a field, fields": (pinfeed.DeviceLoader(DataLoader(Folder(RANDOM), 4), "cpu", STACKED), None),
}  # fmt: skip


@pytest.mark.parametrize("name", OFFERED)
def test_changes_are_offered(name):
    (loader, note), name = OFFERED[name], name.split(",")[0]
    copy, changes = offered(loader, workers=name == "2 workers")
    assert (name in changes) == (note is not None)
    for change in [changes[name]] if note else []:
        assert note in change.note
        assert ("persistent_workers=True" in change.code) is (note == STAYS)
        assert (change.settings is None) is (change.max_speedup is not None)
        assert not change.is_recommended  # before it was tried
        assert change.settings is None or copy.run(change.settings, 0.01).batches


class Rows:
    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="r")
        self.labels = torch.arange(len(self.rows))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"x": torch.from_numpy(self.rows[index].copy()), "y": int(self.labels[index])}


def test_rows_of_a_file_are_read_by_its_path(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).random((64, 5)))
    dataset = Rows(path)
    _, changes = offered(DataLoader(dataset, batch_size=8, shuffle=True), workers=False)
    code = f"pinfeed.from_numpy({{'x': {str(path)!r}, 'y': dataset.labels}}, batch_size=8, shuffle=True)"
    assert changes["rows read natively"].code == code
    batches = eval(code, {"pinfeed": pinfeed, "dataset": dataset})
    result = {
        int(y): row.tolist() for batch in batches for row, y in zip(*batch.values(), strict=True)
    }
    assert result == dict(enumerate(dataset.rows.tolist()))
