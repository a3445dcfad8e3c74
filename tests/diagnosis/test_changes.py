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
from torchvision.tv_tensors import Mask as Classes

import pinfeed
from pinfeed.diagnosis.batch_values import have_equal_values
from pinfeed.diagnosis.runs import LoaderCopy
from sleeping import Sleeping, changes_of


def named(beginning, changes):
    return [change for change in changes if change.name.startswith(beginning)]


def slow(samples):
    time.sleep(0.01)
    return default_collate(samples)


def doubled(samples):
    return slow([2 * sample for sample in samples])


DRAWN = Sleeping(0.001, get=lambda _: np.random.random(4))  # noqa: NPY002
ZEROS = DataLoader(TensorDataset(torch.zeros(64)), batch_size=1)
OFFERED = {
    # Only the user knows whether each sample is always the same.
    "samples decoded once": (DataLoader(Sleeping(), 2), "about 0.00154 MB"),  # 64 of 16 bytes and 8
    "2 workers": (DataLoader(Sleeping(length=12), 4), "persistent workers don't see later changes"),
    "batches by pinfeed.Collate": (
        DataLoader(Sleeping(0.001), 8, collate_fn=slow),
        "had equal values",
    ),
    "batches by pinfeed.Collate, drawn": (
        DataLoader(DRAWN, 8, collate_fn=slow),
        "had equal values",
    ),
    "batches by pinfeed.Collate, doubled": (DataLoader(DRAWN, 8, collate_fn=doubled), None),
    "rows read natively": (pinfeed.DeviceLoader(ZEROS, "cpu"), "had equal values"),
    # The last rows are equal, but of other dtypes.
    "rows read natively, dtypes": (
        DataLoader(TensorDataset(torch.arange(9.0), torch.arange(9))),
        "had equal values",
    ),
    # The loop gets the batches of the fields.
    "rows read natively, fields": (pinfeed.DeviceLoader(ZEROS, "cpu", [pinfeed.Stack()]), None),
}


@pytest.mark.parametrize("name", OFFERED)
def test_changes_are_offered(name):
    loader, note = OFFERED[name]
    changes = named(name.split(",")[0], changes_of(loader))
    assert len(changes) == (note is not None)
    for change in changes:
        assert note in change.note
        assert ("persistent_workers=True" in change.code) is (name == "2 workers")
        assert (change.settings is None) is (change.max_speedup is not None)
        assert not change.is_recommended


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
        return 24

    def __getitem__(self, index):
        pixels = np.random.default_rng(index).integers(0, 256, (60, 80, 3), np.uint8)
        transform = getattr(self, self.key)
        image = PIL.Image.fromarray(pixels)
        return (transform(image) if transform else image), index % 3


class Unchecked(Folder):
    """A dataset that calls its transform unconditionally."""

    def __getitem__(self, index):
        return self.transform(Folder(None)[index][0]), index % 3


class Vision(VisionDataset):
    """Like torchvision's VOCDetection, whose transforms are a pair."""

    __len__ = Folder.__len__

    def __getitem__(self, index):
        image = Folder(None)[index][0]
        return self.transforms(image, index)


class Masks(Vision):
    """Like torchvision's VOCSegmentation, or wrapped if it returns tv_tensors."""

    make = staticmethod(PIL.Image.fromarray)

    def __getitem__(self, index):
        classes = np.random.default_rng(index).integers(0, 21, (60, 80), np.uint8)
        return self.transforms(Folder(None)[index][0], self.make(classes))


class WrappedMasks(Masks):
    make = Classes


class TwoTransforms(Masks):
    """Like tutorial datasets, with separate transforms for images and masks."""

    def transforms(self, image, mask):
        return {"image": self.transform(image), "mask": self.target_transform(mask)}

    def __init__(self, transform, target_transform):
        self.transform, self.target_transform = transform, target_transform


class Planes(Folder):
    """A dataset of channels-first tensors."""

    def __getitem__(self, index):
        return self.transform(v1.functional.pil_to_tensor(Folder(None)[index][0])), index % 3


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
END = [v1.ToTensor(), v1.Normalize(MEAN, STD)]
RESIZED = [v1.Resize(40), v1.CenterCrop(32), *END]
FLOATS = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
CLASSES = [v1.Resize(40, v1.InterpolationMode.NEAREST), v1.CenterCrop(32)]
TRANSFORMS = {
    "a folder": (Folder(v1.Compose(RESIZED)), "dataset.transform, image", True),
    "no check": (Unchecked(v1.Compose(RESIZED)), "dataset.transform, image", True),
    "no check of v2": (Unchecked(v2.Compose([*RESIZED[:2], v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])), "dataset.transform, image", True),
    "a subset": (Subset(Subset(Folder(v1.Compose(RESIZED)), range(20)), range(12)), "dataset.dataset.dataset.transform, image", True),
    "random": (Folder(v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), *END])), "dataset.transform, image", False),
    "a rest": (Folder(v1.Compose([v1.RandomCrop(32), v1.RandAugment(), *END])), "dataset.transform, image", False),
    "a rest without draws": (Folder(v1.Compose([v1.Grayscale(3), *RESIZED])), "dataset.transform, image", True),
    "transforms": (Folder(v2.Compose([v2.CenterCrop(32), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]), "transforms"), "dataset.transforms, image", True),
    "a pair": (Vision("", transform=v1.Compose(RESIZED)), "dataset.transforms.transform, image", True),
    "tensors": (Planes(v2.Compose([v2.CenterCrop(32), v2.ToImage(), *FLOATS])), "dataset.transform, image", True),
    "masks of a pair": (Masks("", transform=v1.Compose(RESIZED), target_transform=v1.Compose([*CLASSES, v1.PILToTensor()])), "dataset.transforms.transform, image", True),
    "two transforms": (TwoTransforms(v1.Compose(RESIZED), v1.Compose([*CLASSES, v1.PILToTensor(), v1.Lambda(lambda mask: mask[0].long())])), "dataset.transform, image", True),
    "masks of tensors": (TwoTransforms(v2.Compose(RESIZED), v2.Compose([v2.ToImage(), *CLASSES])), "dataset.transform, image", True),
    "a mask that isn't moved": (TwoTransforms(v1.Compose([v1.ColorJitter(0.1), *END]), v1.PILToTensor()), "dataset.transform, image", False),
    "both": (WrappedMasks("", transforms=v2.Compose([v2.Resize(40), v2.CenterCrop(32), v2.ToImage(), *FLOATS])), "dataset.transforms, image", True),
    "both, at random": (WrappedMasks("", transforms=v2.Compose([v2.RandomResizedCrop(32), v2.ToImage(), v2.RandomHorizontalFlip(), *FLOATS])), "dataset.transforms, image", False),
}  # fmt: skip


def of_transform(dataset, **options):
    return named("the transform", changes_of(DataLoader(dataset, batch_size=4, **options)))


@pytest.mark.parametrize(("dataset", "code", "is_same"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_becomes_a_field(dataset, code, is_same):
    """The recommended code runs unchanged."""
    (change,) = of_transform(dataset, num_workers=0)
    assert change.code.startswith(code)
    assert "Image(" in change.note
    assert ("draws" in change.note) == (not is_same)
    run = LoaderCopy(DataLoader(dataset, 4)).run(change.settings, 0.01)  # as in trials
    assert run.batches
    expected = [*DataLoader(dataset, 4)]
    names = {"dataset": copy.deepcopy(dataset), "pinfeed": pinfeed, "torch": torch}
    conversion, loader = change.code.rsplit("; ", 1)
    exec(conversion, names)
    names["DataLoader"] = lambda _, collate_fn: DataLoader(
        names["dataset"], 4, collate_fn=collate_fn
    )
    actual = [*eval(loader, names)]
    has_masks = "pinfeed.Mask(" in loader
    assert has_masks == isinstance(dataset, Masks)
    for batch, reference in zip(actual, expected, strict=True):
        (images, targets), (their_images, their_targets) = (
            one.values() if isinstance(one, dict) else one for one in (batch, reference)
        )
        assert images.shape == their_images.shape
        assert targets.dtype == their_targets.dtype
        if has_masks:
            assert targets.shape == (4, *images.shape[2:])
            assert ("pinfeed.Mask(dtype=torch.uint8" in loader) == (targets.dtype == torch.uint8)
        if is_same or not has_masks:
            assert torch.equal(targets, their_targets.reshape(targets.shape))
        assert not is_same or (images - their_images).abs().max() <= 2.02 / 255 / min(STD)


def test_unsupported_transforms_stay():
    twice = v1.Compose([v1.CenterCrop(32), v1.ToTensor(), v1.Lambda(lambda image: image * 2)])
    for dataset in (
        Folder(twice),
        Folder(lambda image: END[0](image)),
        TensorDataset(torch.ones(9, 2)),
    ):
        assert not of_transform(dataset)
    assert not of_transform(Folder(v1.Compose(RESIZED)), collate_fn=lambda samples: samples)


class VisionFolder(VisionDataset):
    """Like torchvision's ImageFolder, which stores a pair of transforms that its samples don't use."""

    __len__, __getitem__, key = Folder.__len__, Folder.__getitem__, "transform"


def test_only_the_transform_that_samples_use_is_tried():
    dataset = VisionFolder("", transform=v1.Compose(RESIZED))
    assert of_transform(dataset)
    dataset.transform, image = pinfeed.Image.from_torchvision(dataset.transform)
    collate = pinfeed.Collate((image, None))
    assert not of_transform(dataset, collate_fn=lambda samples: collate(samples))
