"""Pipelines of torchvision and timm compared with ``Image.from_torchvision``."""

import random
import warnings

import hypothesis
import numpy as np
import pytest
import scipy.stats
import torch

import pinfeed
from messages import check

transforms = pytest.importorskip("torchvision.transforms")
from torchvision import tv_tensors
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 20, 3), np.uint8)
PIXELS[:12] //= 3  # contrast and equalization see more than noise
PLANES = torch.from_numpy(PIXELS).permute(2, 0, 1).contiguous()
FLOATS = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
OLD_FLOATS = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
NAMES = vars(pinfeed) | vars(pinfeed.augment) | {"torch": torch}
BICUBIC = transforms.InterpolationMode.BICUBIC
NEAREST = transforms.InterpolationMode.NEAREST
ONLY_LAST = "Image(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))"
LAST = ONLY_LAST[:-1]


def pil(pixels=PIXELS):
    return transforms.functional.to_pil_image(pixels)


def split(pipeline, **options):
    rest, image = pinfeed.Image.from_torchvision(pipeline, **options)
    # The repr evaluates.
    assert repr(eval(repr(image), dict(NAMES))) == repr(image)
    return rest, image


def result(rest, image, sample):
    return pinfeed.Collate(image)([rest(sample)])[0]


def is_nothing(rest):
    return isinstance(rest, torch.nn.Identity | v2.Identity)


def kinds(rest):
    if is_nothing(rest):
        return []
    return [type(one).__name__ for one in getattr(rest, "transforms", rest)]


# The pipeline, the remaining transforms, and the field.
SPLITS = {
    "augmented": ([transforms.RandAugment(), *OLD_FLOATS], ["RandAugment"], ONLY_LAST),
    "evaluation": ([transforms.Resize(256), transforms.CenterCrop(224), *OLD_FLOATS], [],
        f"{LAST}, augment=[Resize(256), CenterCrop(224)])"),
    "padded": ([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), *OLD_FLOATS], [],
        f"{LAST}, augment=[RandomCrop(32, padding=4), RandomHorizontalFlip()])"),
    "floats first": ([OLD_FLOATS[0], transforms.RandomCrop(32, padding=4), OLD_FLOATS[1]], [],
        f"{LAST}, augment=RandomCrop(32, padding=4))"),
    "a fill of floats": ([OLD_FLOATS[0], transforms.RandomCrop(32, padding=4, fill=1)], [],
        "Image(augment=RandomCrop(32, padding=4, fill=255))"),
    "sides": ([v2.RandomCrop(8, padding=[1, 2, 3, 4]), *FLOATS], [],
        f"{LAST}, input='CHW', augment=RandomCrop(8, padding=(1, 2, 3, 4)))"),
    "a Pad": ([transforms.Pad([1, 2], fill=3), transforms.RandomCrop(8), *OLD_FLOATS], [],
        f"{LAST}, augment=[Pad((1, 2), fill=3), RandomCrop(8)])"),
    "a Pad alone": ([transforms.Pad([2]), *OLD_FLOATS], [], f"{LAST}, augment=Pad(2))"),
    "a Pad that mirrors": ([v2.Resize(8), v2.Pad([1, 2, 3, 4], padding_mode="reflect"), *FLOATS], [],
        f"{LAST}, input='CHW', augment=[Resize(8), Pad((1, 2, 3, 4), padding_mode='reflect')])"),
    "a symmetric Pad": ([v2.Pad(1, padding_mode="symmetric"), *FLOATS], ["Pad"], f"{LAST}, input='CHW')"),
    "a Pad after a crop": ([v2.CenterCrop(9), v2.Pad(1), *FLOATS], ["CenterCrop"], f"{LAST}, input='CHW', augment=Pad(1))"),
    "a Pad between": ([v2.Pad(1), v2.CenterCrop(9), *FLOATS], ["Pad"], f"{LAST}, input='CHW', augment=CenterCrop(9))"),
    "a Pad by type": ([v2.Pad(1, fill={tv_tensors.Image: 7, "others": 0}), *FLOATS], ["Pad"], f"{LAST}, input='CHW')"),
    "two resizes": ([transforms.Resize(30), transforms.RandomResizedCrop(8), *OLD_FLOATS], ["Resize"],
        f"{LAST}, augment=RandomResizedCrop((8, 8)))"),
    "bicubic": ([transforms.Resize((8, 9), BICUBIC), *OLD_FLOATS], [],
        f"{LAST}, augment=Resize((8, 9)), interpolation='bicubic')"),
    "nearest of PIL": ([transforms.Resize(8, NEAREST), *OLD_FLOATS], [],
        f"{LAST}, augment=Resize(8), interpolation='nearest-exact')"),
    "nearest of tensors": ([v2.Resize(8, NEAREST), *FLOATS], [],
        f"{LAST}, input='CHW', augment=Resize(8), interpolation='nearest')"),
    "not antialiased": ([v2.Resize(8, antialias=False), *FLOATS], ["Resize"], f"{LAST}, input='CHW')"),
    "lanczos": ([transforms.Resize(8, transforms.InterpolationMode.LANCZOS), *OLD_FLOATS], ["Resize"], ONLY_LAST),
    "resized floats": ([OLD_FLOATS[0], transforms.Resize(8), OLD_FLOATS[1]], [],
        f"{LAST}, augment=Resize(8), resize_dtype=torch.float32)"),
    "colors": ([transforms.ColorJitter(0.2, 0.3), transforms.RandomVerticalFlip(0.1), *OLD_FLOATS], [],
        f"{LAST}, augment=[RandomVerticalFlip(p=0.1), ColorJitter(brightness=(0.8, 1.2), contrast=(0.7, 1.3))])"),
    "colors before a crop": ([transforms.ColorJitter(0.2), transforms.RandomCrop(8), *OLD_FLOATS], ["ColorJitter"],
        f"{LAST}, augment=RandomCrop(8))"),
    "timm's jitter": ([transforms.ColorJitter(0.4, 0.4, 0.4), *OLD_FLOATS], [],
        f"{LAST}, augment=ColorJitter(brightness=(0.6, 1.4), contrast=(0.6, 1.4), saturation=(0.6, 1.4)))"),
    "a hue": ([transforms.RandomCrop(8), transforms.ColorJitter(0.2, 0, 0.1, 0.1), *OLD_FLOATS],
        ["RandomCrop", "ColorJitter"], ONLY_LAST),
    "SimCLR without hue": ([transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip(),
        transforms.RandomApply([transforms.ColorJitter(0.8, 0.8, 0.8)], p=0.8), transforms.RandomGrayscale(p=0.2), *OLD_FLOATS], [],
        (f"{LAST}, augment=[RandomResizedCrop((8, 8)), RandomHorizontalFlip(), ColorJitter("
        "brightness=(0.19999999999999996, 1.8), contrast=(0.19999999999999996, 1.8), saturation=(0.19999999999999996, 1.8), p=0.8), RandomGrayscale(p=0.2)])")),
    "DINO": ([transforms.RandomHorizontalFlip(), transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        transforms.RandomGrayscale(0.2), *OLD_FLOATS], ["RandomHorizontalFlip", "RandomApply"], f"{LAST}, augment=RandomGrayscale(p=0.2))"),
    "v2's probabilities": ([v2.RandomApply([v2.RandomHorizontalFlip(0.5)], p=0.5), v2.RandomApply(torch.nn.ModuleList([v2.Compose([v2.RandomGrayscale(0.5)])]), p=0.5),
        *FLOATS, v2.RandomApply([v2.RandomErasing(0.5)], p=0.5)], [],
        f"{LAST}, input='CHW', augment=[RandomHorizontalFlip(p=0.25), RandomGrayscale(p=0.25), RandomErasing(p=0.25)])"),
    "two with one probability": ([v2.RandomApply([v2.RandomGrayscale(), v2.RandomHorizontalFlip()]), *FLOATS], ["RandomApply"], f"{LAST}, input='CHW')"),
    "a crop with a probability": ([v2.RandomApply([v2.RandomCrop(8)]), *FLOATS], ["RandomApply"], f"{LAST}, input='CHW')"),
    "colors after erasing": ([v2.RandomErasing(value=9), v2.RandomGrayscale(), *FLOATS], ["RandomErasing"], f"{LAST}, input='CHW', augment=RandomGrayscale())"),
    "a mirrored fill": ([transforms.RandomCrop(8, padding=2, padding_mode="symmetric"), *OLD_FLOATS], ["RandomCrop"], ONLY_LAST),
    "erased": ([*OLD_FLOATS, transforms.RandomErasing(0.2, value="random")], [], f"{LAST}, augment=RandomErasing(p=0.2, value='random'))"),
    "grayscale numbers": ([transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))], [], "Image(mean=0.5, std=0.25)"),
    "bytes": ([v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToPureTensor()], [], "Image(dtype=torch.uint8, augment=RandomHorizontalFlip())"),
    "bytes as floats": ([v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize((127.5,), (64.0,))], [], "Image(mean=127.5, std=64.0, scale=1)"),
    "a dict of dtypes": ([v2.ToImage(), v2.ToDtype({torch.Tensor: None, "others": torch.float32}, scale=True)], [], "Image()"),
    "half": ([*OLD_FLOATS, transforms.ConvertImageDtype(torch.float16)], [], f"{LAST}, dtype=torch.float16)"),
    "tensors in the rest": ([v2.ToImage(), v2.AutoAugment(), *FLOATS], ["ToImage", "AutoAugment"], f"{LAST}, input='CHW')"),
    "identity": ([v2.Identity(), *OLD_FLOATS, torch.nn.Identity()], ["Identity"], ONLY_LAST),
    "sizes": ([v2.RandomShortestSize((8, 12), 20), v2.RandomZoomOut(fill=9, p=0.2), *FLOATS], [],
        f"{LAST}, input='CHW', augment=[RandomShortestSize((8, 12), max_size=20), RandomZoomOut(fill=9, p=0.2)])"),
    "objects": ([v2.RandomIoUCrop(trials=3), v2.ScaleJitter((8, 8)), *FLOATS], [],
        f"{LAST}, input='CHW', augment=[RandomIoUCrop(trials=3), ScaleJitter((8, 8))])"),
    "tensors of numbers": ([v2.ToImage(), FLOATS[0], v2.Normalize(torch.tensor(MEAN), [*np.float32(STD)])], [], ONLY_LAST),
    "arrays of numbers": ([v2.ToImage(), FLOATS[0], v2.Normalize(np.array(MEAN), np.array(STD))], [], ONLY_LAST),
    "bytes of other types": ([v2.PILToTensor(), v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)], [], "Image(dtype=torch.uint8)"),
    "a dtype of PIL images": ([v2.ToDtype(torch.float32), v2.ToImage(), *FLOATS], [], ONLY_LAST),
    "images of that type": ([v2.PILToTensor(), v2.ToImage(), v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)], [], "Image()"),
}  # fmt: skip


@pytest.mark.parametrize("case", SPLITS)
def test_remaining_transforms_and_the_field(case):
    pipeline, left, text = SPLITS[case]
    rest, image = split(v2.Compose(pipeline))
    assert (kinds(rest), repr(image)) == (left, text)


def test_containers():
    steps = [transforms.Grayscale(3), transforms.CenterCrop(8), *OLD_FLOATS]
    nested = transforms.Compose([transforms.Compose(steps[:3]), steps[3]])
    text = f"{LAST}, augment=CenterCrop(8))"
    for pipeline in nested, steps:
        rest, image = split(pipeline)
        assert type(rest) is transforms.Compose
        assert repr(image) == text
    assert type(split([v2.Grayscale(3), *FLOATS])[0]) is v2.Compose
    sequential = torch.nn.Sequential(
        steps[0], transforms.ConvertImageDtype(torch.float32), steps[3]
    )
    rest, image = split(sequential)
    assert type(rest) is torch.nn.Sequential
    assert len(rest) == 1
    actual, expected = result(rest, image, PLANES), sequential(PLANES)
    torch.testing.assert_close(actual, expected)
    assert type(split(transforms.ToTensor())[0]) is torch.nn.Identity
    assert type(split(v2.Compose(FLOATS))[0]) is v2.Identity


@pytest.mark.parametrize("first", [[], [transforms.Grayscale()]], ids=["L", "Grayscale"])
def test_gray_images(first):
    """As in MNIST tutorials."""
    pipeline = transforms.Compose(
        [*first, transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
    )
    sample = pil() if first else pil(PIXELS[..., 0])
    torch.testing.assert_close(result(*split(pipeline), sample), pipeline(sample))


def test_gray_bytes_are_resized():
    """They are images, not masks."""
    pipeline = v2.Compose([v2.Resize((9, 7)), v2.ToImage()])
    rest, image = split(pipeline)
    assert is_nothing(rest)
    expected = v2.functional.resize(PLANES[:1], (9, 7))
    assert torch.equal(result(rest, image, pil(PIXELS[..., 0])), expected)
    unscaled = [v2.ToImage(), v2.Resize((9, 7)), v2.ToDtype(torch.float32)]
    assert torch.equal(result(*split(unscaled, input="HW"), PIXELS[..., 0]), expected.float())


# A preset, and the tolerance for Pillow's resizing, in units of the batch.
PRESETS = {
    "ImageClassification": ({"crop_size": 12, "resize_size": 16}, 2.5 / 255 / 0.22),
    "SemanticSegmentation": ({"resize_size": 16}, 2.5 / 255 / 0.22),
    "SemanticSegmentation, as large": ({"resize_size": None}, 1e-6),
    "ObjectDetection": ({}, 1e-6),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_of_weights(name):
    options, tolerance = PRESETS[name]
    pipeline = preset(name.partition(",")[0], **options)
    rest, image = split(pipeline)
    assert is_nothing(rest)
    actual = result(rest, image, pil())
    torch.testing.assert_close(actual, pipeline(pil()), rtol=0, atol=tolerance)


def test_options():
    image = split(v2.Compose(FLOATS), dtype=torch.bfloat16, channels_last=True)[1]
    assert repr(image) == f"{LAST}, input='CHW', dtype=torch.bfloat16, channels_last=True)"
    assert split(v2.Compose(FLOATS), input="HWC")[1].input == "HWC"


def of(*steps):
    return lambda: pinfeed.Image.from_torchvision(transforms.Compose([*steps]))


def preset(name, **options):
    presets = pytest.importorskip("torchvision.transforms._presets")
    return getattr(presets, name)(**options)


class Inverted(torch.nn.Sequential):
    def forward(self, image):
        return transforms.functional.invert(super().forward(image))


class Doubled(list):
    def __call__(self, image):
        return numbers(self[0](image))


class Mirrored(torch.nn.Identity):
    def forward(self, image):
        return transforms.functional.hflip(image)


@pytest.mark.parametrize("kind", [Inverted, lambda one: Doubled([one]), Mirrored])
def test_subclasses_of_containers_stay(kind):
    """A conversion would skip their methods."""
    pipeline = transforms.Compose([kind(transforms.CenterCrop(4)), *OLD_FLOATS])
    rest, image = split(pipeline)
    assert rest.transforms == pipeline.transforms[:1]
    torch.testing.assert_close(result(rest, image, pil()), pipeline(pil()))


RESTS = {
    "policies": [transforms.RandAugment(), *OLD_FLOATS],
    "what could be converted alone": [transforms.ColorJitter(0.2), transforms.RandomCrop(8), *OLD_FLOATS],
    "nothing": OLD_FLOATS,
    "nothing of v2": FLOATS,
}  # fmt: skip


@pytest.mark.parametrize("case", RESTS)
def test_remaining_transforms_are_not_converted_again(case):
    """Such as in a notebook cell that runs twice."""
    transform, image = split(transforms.Compose(RESTS[case]))
    again = "got the rest that an earlier call returned; use the field of that call"
    check(lambda: pinfeed.Image.from_torchvision(transform), ValueError, again)
    fresh = transforms.Compose(RESTS[case])
    assert repr(split(fresh)[1]) == repr(image)


TO_TENSOR, CROP = transforms.ToTensor(), transforms.RandomCrop(8, padding=2)
# The call, the error, and words of its message.
BAD = {
    "a function": (lambda: pinfeed.Image.from_torchvision(lambda image: image), TypeError, "torchvision or timm", "got function", "__getitem__"),
    "steps of the user's": (of(lambda image: image, str), TypeError, "a list of such transforms, got Compose of function, type; call other"),
    "nothing": (lambda: pinfeed.Image.from_torchvision(None), TypeError, "got NoneType"),
    "an option": (lambda: pinfeed.Image.from_torchvision(TO_TENSOR, mean=0.5), TypeError, "mean must be left out, because the transform determines it"),
    "a function of floats": (of(TO_TENSOR, transforms.Lambda(torch.sqrt), OLD_FLOATS[1]),
        ValueError, "Lambda comes after ToTensor", "; move it before ToTensor, where it gets a PIL image, or leave it and Normalize out, and call them on each image"),
    "colors of floats": (of(TO_TENSOR, transforms.ColorJitter(0.2)), ValueError, "ColorJitter comes after ToTensor", "other values"),
    "padded with the mean": (of(*OLD_FLOATS, CROP), ValueError, "RandomCrop comes after ToTensor", "pads before it normalizes"),
    "cropped last": (of(*OLD_FLOATS, transforms.CenterCrop(8)), ValueError,
        "CenterCrop comes after ToTensor, and it pads images smaller than (8, 8) after Normalize, but an Image before; move it before ToTensor, where it gets a PIL image, or leave it out"),
    "no steps": (of(), ValueError, "step that an Image can apply, but it is empty; if an earlier call returned the transform"),
    "nothing known": (of(CROP, v2.GaussianBlur(3)), ValueError, "it ends with GaussianBlur, and an Image can't apply it;", "keep the transform and write the field: Image(dtype=torch.uint8) keeps bytes, Image() makes floats of 0..1"),
    "an Identity": (lambda: pinfeed.Image.from_torchvision(torch.nn.Identity()), ValueError, "must end with a step"),
    "a class": (of(CROP, transforms.ToTensor), TypeError, "got the class ToTensor; create it with parentheses: ToTensor(...)"),
    "a chance of floats": (of(TO_TENSOR, transforms.RandomApply([transforms.ColorJitter(0.2)]), OLD_FLOATS[1]), ValueError, "RandomApply comes after ToTensor, and", "move it before ToTensor"),
    "a negative deviation": (of(TO_TENSOR, transforms.Normalize(MEAN, (-1, 1, 1))), ValueError, "Normalize comes after ToTensor, and", "std must be positive"),
    "floats that are cropped": (of(OLD_FLOATS[1], transforms.CenterCrop(8)), ValueError, "; move it before Normalize, or leave it out"),
    "fractions of bytes": (of(v2.ToImage(), v2.ToDtype(torch.float32), OLD_FLOATS[1]), ValueError,
        "Normalize comes after ToDtype, and has constants for values of 0..1, but gets values of 0..255; write ToDtype(torch.float32, scale=True)"),
    "16 bits": (of(v2.ToImage(), v2.ToDtype(torch.int16), *FLOATS), ValueError, "ToDtype: an Image can't convert bytes to torch.int16"),
    "ten crops": (of(transforms.TenCrop(8), transforms.Lambda(torch.stack)), ValueError, "transform must return one image, but TenCrop returns several; stack"),
    "five crops of tensors": (of(v2.FiveCrop(8), *FLOATS), ValueError, "transform must return one image, but FiveCrop returns several; stack"),
    "a named color": (of(TO_TENSOR, transforms.RandomCrop(8, padding=2, fill="red")), ValueError, "takes numbers as fill, not 'red'; move it before"),
    "a fill between bytes": (of(TO_TENSOR, transforms.RandomCrop(8, padding=2, fill=0.3)), ValueError, "fills with whole bytes"),
    "twice normalized": (of(*OLD_FLOATS, OLD_FLOATS[1]), ValueError, "normalizes once"),
    "normalized bytes": (of(transforms.PILToTensor(), OLD_FLOATS[1]), ValueError, "Normalize: its input is bytes; put ToDtype(torch.float32, scale=True) before it"),
    "double": (of(transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float64)), ValueError, "convert bytes to torch.float64"),
    "normalized halves": (of(transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float16), OLD_FLOATS[1]), ValueError, "in float32"),
    "noise that is normalized": (of(TO_TENSOR, transforms.RandomErasing(value="random"), OLD_FLOATS[1]), ValueError, "random values after it normalizes"),
    "bytes again": (of(TO_TENSOR, transforms.ToPILImage()), ValueError, "ToPILImage comes after ToTensor"),
    "a gray of floats": (of(TO_TENSOR, transforms.RandomGrayscale()), ValueError, "RandomGrayscale comes after ToTensor", "move it before ToTensor"),
    "a batch's": (of(*OLD_FLOATS, v2.MixUp(num_classes=3)), ValueError, "call it on the batch"),
    "clips": (lambda: pinfeed.Image.from_torchvision(preset("VideoClassification", crop_size=(8, 8), resize_size=(9, 9))), ValueError, "for single images, got VideoClassification"),
    "pairs": (lambda: pinfeed.Image.from_torchvision([preset("OpticalFlow")]), ValueError, "for single images, got OpticalFlow"),
    "an antialias of floats": (of(TO_TENSOR, transforms.Resize(8, antialias=False)), ValueError, "always antialiases"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_pipelines(case):
    check(*BAD[case])


def test_five_crops():
    """The hint in the message is the code in torchvision's documentation."""
    several, to_bytes = transforms.FiveCrop(8), transforms.functional.pil_to_tensor
    finish = transforms.Compose(OLD_FLOATS)
    pipeline = transforms.Compose(
        [several, transforms.Lambda(lambda crops: torch.stack([finish(crop) for crop in crops]))]
    )
    field = "Image(mean, std, input='TCHW', output='TCHW')"
    check(lambda: pinfeed.Image.from_torchvision(pipeline), ValueError, "FiveCrop", field)
    stack = torch.stack([to_bytes(crop) for crop in several(pil())])
    image = eval(field, {"mean": MEAN, "std": STD, **NAMES})
    torch.testing.assert_close(pinfeed.Collate(image)([stack])[0], pipeline(pil()))


def numbers(one):
    return (
        one.point(lambda value: min(2 * value, 255))
        if hasattr(one, "point")
        else (2 * one).clip(max=1)
    )


DOUBLE, LINEAR = (
    transforms.Lambda(numbers),
    transforms.LinearTransformation(0.5 * torch.eye(1440), torch.ones(1440)),
)
TENSOR, NORMALIZE = OLD_FLOATS
MIRROR, SHARP = transforms.RandomHorizontalFlip(1), transforms.RandomAdjustSharpness(1, p=1)
LOW = {"rtol": 0, "atol": 0.5 / 255 / 0.22}  # half a level
# The pipeline that raises, the message, and the suggested fix: a pipeline, and calls per image.
ADVICE = {
    "bytes": ([TENSOR, DOUBLE, NORMALIZE], "move it before ToTensor", [DOUBLE, TENSOR, NORMALIZE], [], {}),
    "the batch": ([TENSOR, DOUBLE, NORMALIZE], "leave it and Normalize out, and call them on each image", [TENSOR], [DOUBLE, NORMALIZE], {}),
    "moved together": ([TENSOR, MIRROR, SHARP, NORMALIZE], "move RandomHorizontalFlip and it before ToTensor", [MIRROR, SHARP, *OLD_FLOATS], [], {}),
    "a Pad": ([*OLD_FLOATS, transforms.Pad(2, fill=9)], "normalizes; leave it out, and call it on each image", OLD_FLOATS, [transforms.Pad(2, fill=9)], {}),
    "a crop": ([*OLD_FLOATS, transforms.RandomCrop((28, 24), padding=2)], "; leave it out", OLD_FLOATS, [transforms.RandomCrop((28, 24), padding=2)], {}),
    "a Pad before others": ([*OLD_FLOATS, transforms.Pad(2), MIRROR], "; leave it and RandomHorizontalFlip out, and call them", OLD_FLOATS, [transforms.Pad(2), MIRROR], {}),
    "a Pad after a crop": ([TENSOR, transforms.CenterCrop(8), NORMALIZE, transforms.Pad(2)], "; leave it out",
        [TENSOR, transforms.CenterCrop(8), NORMALIZE], [transforms.Pad(2)], {}),
    "a center": ([*OLD_FLOATS, transforms.CenterCrop(8)], "move it before ToTensor", [transforms.CenterCrop(8), *OLD_FLOATS], [], {}),
    "a byte that is none": ([TENSOR, transforms.Pad(2, fill=0.3)], "use the nearest color, fill=76 / 255", [TENSOR, transforms.Pad(2, fill=76 / 255)], [], LOW),
    "beyond bytes": ([v2.ToImage(), v2.ToDtype(torch.float32), v2.Pad(1, fill=(300, 1, 2))], "use the nearest color, fill=(255, 1, 2)",
        [v2.ToImage(), v2.ToDtype(torch.float32), v2.Pad(1, fill=(255, 1, 2))], [], {"rtol": 0, "atol": 45}),
    "an antialias": ([TENSOR, transforms.Resize(8, antialias=False)], "; leave out antialias=False", [TENSOR, transforms.Resize(8)], [], {"rtol": 0, "atol": 0.5}),
    "bytes between": ([TENSOR, transforms.CenterCrop(8), transforms.ToPILImage(), MIRROR, *OLD_FLOATS], "; leave out ToTensor and ToPILImage",
        [transforms.CenterCrop(8), MIRROR, *OLD_FLOATS], [], {}),
    "a matrix": ([*OLD_FLOATS, LINEAR], "can't apply it; leave it out, and call it on each image", OLD_FLOATS, [LINEAR], {}),
    "twice": ([*OLD_FLOATS, NORMALIZE], "; leave it out, and call it on each image of the batch", OLD_FLOATS, [NORMALIZE], {}),
    "double": ([transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float64)], "; leave it out, and call it on each image",
        [transforms.PILToTensor()], [transforms.ConvertImageDtype(torch.float64)], {}),
    "a crop after erasing": ([TENSOR, transforms.RandomErasing(p=0), transforms.CenterCrop(8)], "; put it before the erasing", [TENSOR, transforms.CenterCrop(8), transforms.RandomErasing(p=0)], [], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", ADVICE)
def test_fixes_in_messages_work(case):
    pipeline, words, advised, calls, tolerance = ADVICE[case]
    check(of(*pipeline), ValueError, words)
    actual = result(*split(transforms.Compose(advised)), pil())
    for call in calls:
        actual = call(actual)
    expected = transforms.Compose(pipeline)(pil())
    torch.testing.assert_close(actual, expected, **tolerance)


@pytest.mark.parametrize("options", [{"mode": "pixel", "max_count": 3}, {"mode": "rand"}], ids=str)
def test_timm_noise_per_image(options):
    erasing = of_timm("RandomErasing", 1, device="cpu", **options)
    words = "RandomErasing comes", "; leave it out, and call it on each image"
    check(of(*OLD_FLOATS, erasing), ValueError, *words)
    batch = pinfeed.Collate(split(transforms.Compose(OLD_FLOATS))[1])([pil(), pil()])
    erased = torch.stack([erasing(image.clone()) for image in batch])
    assert not torch.equal(erased[0], erased[1])


@pytest.mark.parametrize("fill", [300, -1, 0.3, (1, 2, 300)])
def test_a_fill_between_bytes_stays(fill):
    rest, image = split(v2.Compose([v2.Pad(2, fill=fill), *OLD_FLOATS]))
    assert kinds(rest) == ["Pad"]
    assert repr(image) == ONLY_LAST


class Unchecked(torch.utils.data.Dataset):
    """Calls its transform unconditionally, like most datasets."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.transform(pil(PIXELS + np.uint8(index))), index


@pytest.mark.parametrize("steps", [OLD_FLOATS, [v2.ToImage(), *FLOATS]])
def test_a_dataset_that_always_calls_its_transform(steps):
    dataset = Unchecked(transforms.Compose(steps))
    expected, _ = next(iter(torch.utils.data.DataLoader(dataset, 2)))
    dataset.transform, image = split(dataset.transform)
    collate = pinfeed.Collate((image, None))
    actual, _ = next(
        iter(torch.utils.data.DataLoader(dataset, 2, collate_fn=collate, num_workers=1))
    )
    torch.testing.assert_close(actual, expected)


def test_pairs():
    """A v2 transform of an image and its target."""
    target = torch.tensor(3)
    rest, _ = split(v2.Compose([v2.ToImage(), *FLOATS]))
    assert rest(PLANES, target)[1] is target


# Steps with deterministic results; of the steps before the conversion to floats, some stay and some are fused.
FUSED = [
    lambda draw: v2.Resize(draw.choice([9, [9, 13], [14]])),
    lambda draw: v2.Resize((draw.randint(5, 30), draw.randint(5, 30)), interpolation=BICUBIC),
    lambda draw: v2.Resize(draw.randint(5, 30), interpolation=draw.choice(["nearest", "nearest-exact"])),
    lambda draw: v2.Resize(12, max_size=13),
    lambda draw: v2.CenterCrop(draw.choice([6, (9, 7), 40])),
    lambda draw: v2.RandomHorizontalFlip(draw.choice([0, 1])),
    lambda draw: v2.RandomVerticalFlip(draw.choice([0, 1])),
    lambda draw: v2.RandomShortestSize(draw.randint(6, 20), max_size=draw.choice([None, 22])),
    lambda draw: v2.RandomResize(11, 12),
    lambda draw: v2.RandomZoomOut(p=0),
    lambda draw: v2.Pad(draw.choice([1, [1, 2], [1, 2, 3, 4]]), fill=draw.choice([0, 5])),
    lambda draw: v2.Pad(draw.choice([[1, 0], [2, 1, 0, 3]]), padding_mode=draw.choice(["edge", "reflect"])),
    lambda draw: v2.RandomErasing(p=0),
    lambda draw: v2.ColorJitter((1.3, 1.3)),
    lambda draw: v2.ColorJitter(contrast=(0.6, 0.6)),
    lambda draw: v2.ColorJitter(saturation=(1.5, 1.5)),
    lambda draw: v2.RandomGrayscale(draw.choice([0, 1])),
    lambda draw: v2.RandomApply([v2.ColorJitter(saturation=(0.2, 0.2))], p=draw.choice([0, 1])),
    lambda draw: v2.ToImage(),
    lambda draw: v2.ToPureTensor(),
    lambda draw: v2.Compose([v2.ToDtype(torch.uint8, scale=True), v2.RandomHorizontalFlip(1)]),
]  # fmt: skip
LEFT = [
    lambda draw: v2.Identity(),
    lambda draw: v2.Lambda(lambda image: image.flip(0)),
    lambda draw: v2.Pad(draw.choice([1, [1, 2]]), padding_mode="symmetric"),
    lambda draw: v2.GaussianBlur(3, sigma=(1, 1)),
    lambda draw: v2.RandomInvert(p=1),
    lambda draw: v2.RandomPosterize(3, p=1),
    lambda draw: v2.RandomSolarize(100, p=1),
    lambda draw: v2.RandomAutocontrast(p=1),
    lambda draw: v2.RandomEqualize(p=1),
    lambda draw: v2.RandomAdjustSharpness(2, p=1),
    lambda draw: v2.Grayscale(3),
    lambda draw: v2.RandomRotation((90, 90)),
    lambda draw: v2.ColorJitter(hue=(0.1, 0.1)),
    lambda draw: v2.RandomApply([v2.Resize(10)], p=1),
    lambda draw: v2.Resize(10, antialias=False),
]
AFTER = [
    lambda draw: v2.RandomHorizontalFlip(draw.choice([0, 1])),
    lambda draw: v2.Resize((draw.randint(5, 30), draw.randint(5, 30))),
    lambda draw: v2.CenterCrop(5),
    lambda draw: v2.RandomErasing(p=0),
    lambda draw: v2.GaussianBlur(3, sigma=(1, 1)),
    lambda draw: torch.nn.Identity(),
]


@pytest.mark.parametrize("number", range(200))
def test_any_pipeline(number):
    """The remaining transforms and the field equal the pipeline, or the error names a step after the conversion to floats."""
    draw = random.Random(number)
    steps = [
        draw.choice(FUSED if draw.random() < 0.75 else LEFT)(draw)
        for _ in range(draw.randint(0, 5))
    ]
    ends = [FLOATS, FLOATS[:1], [], [v2.ToDtype(torch.float32), v2.Normalize((100,), (50,))]]
    end = [*draw.choice(ends)]
    for _ in range(draw.choice([0, 0, 1])):
        end.insert(draw.randint(min(1, len(end)), len(end)), draw.choice(AFTER)(draw))
    pipeline = v2.Compose([*steps, *end] or [v2.Identity()])
    try:
        # A pipeline doesn't always show that samples are tensors.
        rest, image = split(pipeline, input="CHW")
    except ValueError as error:
        is_late = any(f"{type(one).__name__} comes after" in str(error) for one in end[1:])
        is_nothing = "must end with a step" in str(error) and pipeline(PLANES).dtype == torch.uint8
        assert is_late or is_nothing
        return
    expected = pipeline(PLANES).as_subclass(torch.Tensor)
    actual = result(rest, image, PLANES)
    if expected.dtype == torch.uint8:
        assert torch.equal(actual, expected)
    else:
        scale = 255 if expected.abs().max() > 30 else 1
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=2e-5 * scale)


# The same for PIL images, with torchvision's older classes.
OLD = [
    lambda draw: transforms.Resize(draw.choice([9, (9, 13), 14]), draw.choice([BICUBIC, NEAREST, transforms.InterpolationMode.BILINEAR])),
    lambda draw: transforms.Resize(12, max_size=13),
    lambda draw: transforms.CenterCrop(draw.choice([6, (9, 7), 40])),
    lambda draw: transforms.RandomHorizontalFlip(draw.choice([0, 1])),
    lambda draw: transforms.RandomVerticalFlip(draw.choice([0, 1])),
    lambda draw: transforms.Compose([transforms.CenterCrop(8), transforms.RandomCrop(8)]),
    lambda draw: transforms.Compose([transforms.CenterCrop(9), transforms.RandomCrop((11, 11), padding=1, fill=draw.choice([0, 200, (1, 2, 3)]))]),
    lambda draw: transforms.Compose([transforms.CenterCrop(9), transforms.Pad((1, 1, 1, 1), fill=9), transforms.RandomCrop(11)]),
    lambda draw: transforms.Compose([transforms.CenterCrop((9, 7)), transforms.RandomCrop((11, 7), padding=(0, 1), padding_mode="reflect")]),
    lambda draw: transforms.Compose([transforms.CenterCrop(9), transforms.RandomResizedCrop(7, scale=(1, 1), ratio=(1, 1))]),
    lambda draw: transforms.ColorJitter((1.3, 1.3)),
    lambda draw: transforms.ColorJitter(contrast=(0.6, 0.6)),
    lambda draw: transforms.ColorJitter(saturation=(1.5, 1.5)),
    lambda draw: transforms.RandomGrayscale(draw.choice([0, 1])),
    lambda draw: transforms.RandomApply([transforms.ColorJitter((0.8, 0.8))], p=draw.choice([0, 1])),
    lambda draw: transforms.Pad(draw.choice([1, [1, 2], [1, 2, 3, 4]]), fill=draw.choice([0, 5])),
    lambda draw: transforms.RandomInvert(p=1),
    lambda draw: transforms.Grayscale(3),
    lambda draw: transforms.RandomRotation((90, 90)),
    lambda draw: transforms.Lambda(lambda image: image.transpose(0)),
]  # fmt: skip
OLD_ENDS = [
    [transforms.ToTensor(), transforms.Normalize(MEAN, STD)],
    [transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float32), transforms.Normalize((0.5,), STD)],
    [transforms.PILToTensor()],
    [transforms.ToTensor()],
]  # fmt: skip
OLD_AFTER = [
    lambda draw: transforms.CenterCrop(7),
    lambda draw: transforms.Resize(11),
    lambda draw: transforms.RandomVerticalFlip(1),
    lambda draw: transforms.RandomErasing(p=0),
    lambda draw: transforms.Compose([transforms.CenterCrop(9), transforms.RandomCrop((11, 11), padding=1, fill=draw.choice([0, 1, 0.3]))]),
]  # fmt: skip


# The same for timm.
TIMM_STEPS = [
    lambda draw: of_timm("ResizeKeepRatio", draw.choice([16, (12, 20)]), draw.choice([0, 0.4, 1]), interpolation=draw.choice(["bilinear", "bicubic"])),
    lambda draw: of_timm("CenterCropOrPad", draw.choice([9, (30, 14)]), fill=draw.choice([0, (9, 8, 7)])),
    lambda draw: of_timm("CenterCropOrPad", (30, 14), padding_mode="edge"),
    lambda draw: of_timm("TrimBorder", 2),
    lambda draw: transforms.RandomHorizontalFlip(draw.choice([0, 1])),
    lambda draw: transforms.Grayscale(3),
    lambda draw: transforms.ColorJitter(saturation=(1.5, 1.5)),
]  # fmt: skip
TIMM_ENDS = [
    lambda: [of_timm("MaybeToTensor"), transforms.Normalize(torch.tensor(MEAN), torch.tensor(STD))],
    lambda: [of_timm("MaybePILToTensor")],
    lambda: [of_timm("ToTensor")],
]


@pytest.mark.parametrize("number", range(200))
@pytest.mark.parametrize("kind", ["torchvision", "timm"])
def test_any_pipeline_of_pil_images(kind, number):
    draw = random.Random(number)
    is_timm = kind == "timm"
    choices, min_steps = (TIMM_STEPS, 1) if is_timm else (OLD, 0)
    steps = [draw.choice(choices)(draw) for _ in range(draw.randint(min_steps, 4))]
    end = draw.choice(TIMM_ENDS)() if is_timm else [*draw.choice(OLD_ENDS)]
    for _ in range(0 if is_timm else draw.choice([0, 0, 1])):
        end.insert(draw.randint(1, len(end)), draw.choice(OLD_AFTER)(draw))
    pipeline = transforms.Compose([*steps, *end])
    rows, columns = np.arange(24)[:, None, None], np.arange(20)[:, None]
    smooth = 127 + 100 * np.sin(rows / 5 + np.arange(3)) * np.cos(columns / 6 + np.arange(3))
    sample = pil(smooth.astype(np.uint8))
    try:
        rest, image = split(pipeline)
    except ValueError as error:
        is_nothing = "must end with a step" in str(error) and "fills with whole bytes" in str(error)
        assert not is_timm
        assert is_nothing or "comes after" in str(error)  # noqa: PT017
        return
    assert not is_timm or len(kinds(rest)) < len(steps) + len(end)
    expected, actual = pipeline(sample).float(), result(rest, image, sample).float()
    assert actual.shape == expected.shape
    is_float = end[0].__class__ is transforms.ToTensor or len(end) > 1
    unit = (
        1 / 255 / (0.224 if image.std is not None else 1)
        if is_float and image.dtype == torch.float32
        else 1
    )
    levels = (actual - expected).abs() / unit
    # Pillow rounds differently when it resizes or changes colors.
    assert levels.max() <= 4.5
    assert levels.mean() <= 1.1


def positions(batch):
    """Returns row and column of each crop's first pixel; pixels encode their positions."""
    return batch[:, :2, 0, 0]


MAP = torch.stack(
    [*torch.meshgrid(torch.arange(20), torch.arange(24), indexing="ij"), torch.full((20, 24), 100)]
)
MAP = MAP.to(torch.uint8)
HALF = torch.tensor([[200] * 3, [40] * 3, [90, 120, 60]], dtype=torch.uint8)[:, None]
#: 4,000 draws distinguish distributions that differ by 5 % somewhere.
DRAWS = 4_000 if hypothesis.settings().max_examples < 100 else 10_000
# A step, and the compared statistic of its result.
RANDOM = {
    "crops": (v2.RandomCrop(8, padding=3), positions),
    "flips": (v2.Compose([v2.RandomHorizontalFlip(0.3), v2.RandomVerticalFlip(0.6)]), positions),
    "resized crops": (
        v2.RandomResizedCrop(8, scale=(0.1, 0.5), interpolation="nearest-exact"),
        lambda batch: torch.stack([batch[:, 0, 0, 0], batch[:, 1, 0, 0], batch[:, 0, 7, 0], batch[:, 1, 0, 7]], 1),
    ),
    "a brightness": (v2.ColorJitter(0.3), lambda batch: batch[:, 2:, 0, 0]),
    "a contrast": (v2.ColorJitter(contrast=0.5), lambda batch: batch[:, 1:, 0, 0]),
    "a saturation": (v2.RandomApply([v2.ColorJitter(saturation=0.5)], p=0.5), lambda batch: batch[:, 0, 0]),
    "colors": (v2.ColorJitter(0.3, 0.5, 0.4), lambda batch: batch[:, :, 0, [0, 1]].flatten(1)),
    "SimCLR's colors": (v2.Compose([v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8)], p=0.8), v2.RandomGrayscale(0.2)]),
        lambda batch: batch[:, :, 0, [0, 2]].flatten(1)),
    "zooms": (
        v2.Compose([v2.RandomZoomOut(fill=255, p=0.7), v2.Resize((8, 8), interpolation="nearest-exact")]),
        lambda batch: (batch[:, 2] == 255).float().sum((1, 2))[:, None],
    ),
}  # fmt: skip


def assert_same_distributions(expected, actual, tolerance=None):
    """Compares each column of two lists of draws: their distributions and, with a tolerance, their extremes."""
    for one, other in zip(zip(*expected, strict=True), zip(*actual, strict=True), strict=True):
        assert scipy.stats.ks_2samp(one, other, method="asymp").pvalue > 1e-4
        if tolerance is not None:
            extremes = (min(one), max(one))
            assert (min(other), max(other)) == pytest.approx(extremes, abs=tolerance)


@pytest.mark.parametrize("case", RANDOM)
def test_distributions(case):
    step, statistic = RANDOM[case]
    pipeline = v2.Compose([step])
    rest, image = split(pipeline, input="CHW")
    assert is_nothing(rest)
    torch.manual_seed(0)
    has_several = "colors" in case  # extremes rarely coincide
    sample = HALF if has_several or case == "a saturation" else MAP
    reference = statistic(torch.stack([pipeline(sample) for _ in range(DRAWS)]))
    values = statistic(pinfeed.Collate(image)([sample] * DRAWS))
    assert_same_distributions(reference.tolist(), values.tolist(), None if has_several else 2)


@pytest.mark.parametrize(
    "step",
    [
        v2.RandomShortestSize((8, 9, 12), 13),
        v2.RandomResize(7, 15),
        v2.ScaleJitter((10, 9), (0.5, 1.5)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_distributions_of_sizes(step):
    rest, image = split([step], input="CHW", pad_value=0, sizes=True)
    assert is_nothing(rest)
    torch.manual_seed(0)
    blank = torch.zeros((1, 24, 20), dtype=torch.uint8)
    reference = [step(blank).shape[1:] for _ in range(DRAWS)]
    values = pinfeed.Collate(image)([blank] * DRAWS).lengths.tolist()
    assert_same_distributions(reference, values, 0)


@pytest.mark.parametrize("position", ["bytes", "scaled", "normalized"])
def test_erasing(position):
    erasing = v2.RandomErasing(p=1, scale=(0.1, 0.3), value=9 if position == "bytes" else 0.25)
    steps = [*FLOATS]
    steps.insert({"bytes": 0, "scaled": 1, "normalized": 2}[position], erasing)
    pipeline = v2.Compose(steps)
    rest, image = split(pipeline)
    assert is_nothing(rest)
    torch.manual_seed(0)
    blank = torch.full((3, 16, 16), 200, dtype=torch.uint8)
    expected = torch.stack([pipeline(blank) for _ in range(DRAWS)])
    actual = pinfeed.Collate(image)([blank] * DRAWS)
    for channel in range(3):
        values = [batch[:, channel].unique() for batch in (expected, actual)]
        torch.testing.assert_close(*values)
    counts = [
        (batch[:, 0] == batch[:, 0].min()).sum((1, 2)).tolist() for batch in (expected, actual)
    ]
    assert scipy.stats.ks_2samp(*counts, method="asymp").pvalue > 1e-4


TIMM = {
    "evaluation": ({}, [], f"{LAST}, augment=[Resize(256), CenterCrop(224)])"),
    "training": ({"is_training": True}, [],
        f"{LAST}, augment=[RandomResizedCrop((224, 224)), RandomHorizontalFlip(), ColorJitter(brightness=(0.6, 1.4), contrast=(0.6, 1.4), saturation=(0.6, 1.4))])"),
    "SimCLR": ({"is_training": True, "color_jitter_prob": 0.8, "grayscale_prob": 0.2}, [],
        f"{LAST}, augment=[RandomResizedCrop((224, 224)), RandomHorizontalFlip(), ColorJitter(brightness=(0.6, 1.4), contrast=(0.6, 1.4), saturation=(0.6, 1.4), p=0.8), RandomGrayscale(p=0.2)])"),
    "a hue": ({"is_training": True, "color_jitter": (0.4, 0.4, 0.4, 0.1), "grayscale_prob": 0.2},
        ["RandomResizedCropAndInterpolation", "RandomHorizontalFlip", "ColorJitter"], f"{LAST}, augment=RandomGrayscale(p=0.2))"),
    "no colors": ({"is_training": True, "color_jitter": None, "re_prob": 0.25, "re_mode": "pixel"}, [],
        f"{LAST}, augment=[RandomResizedCrop((224, 224)), RandomHorizontalFlip(), RandomErasing(p=0.25, scale=(0.02, 0.3333333333333333), ratio=(0.3, 3.333333333333334), value='random')])"),
    "random interpolation": ({"is_training": True, "color_jitter": None, "interpolation": "random"}, [],
        f"{LAST}, augment=[RandomResizedCrop((224, 224)), RandomHorizontalFlip()], interpolation=('bilinear', 'bicubic'))"),
    "a border": ({"crop_mode": "border", "interpolation": "bicubic"}, [],
        f"{LAST}, augment=[ResizeKeepRatio(256, longest=1.0), CenterCrop(224)], fill=(124, 116, 104), interpolation='bicubic')"),
    "another shape": ({"input_size": (3, 200, 160)}, [],
        f"{LAST}, augment=[ResizeKeepRatio((228, 182)), CenterCrop((200, 160))])"),
    "a ratio that is kept": ({"is_training": True, "color_jitter": None, "train_crop_mode": "rkrc"}, [],
        (f"{LAST}, augment=[ResizeKeepRatio(224, random_scale_prob=0.5, random_scale_range=(0.8, 1.0), random_scale_area=True, "
        "random_aspect_prob=0.5, random_aspect_range=(0.9, 1.1111111111111112)), CenterCrop(224, padding_mode='reflect'), RandomHorizontalFlip()])")),
    "cropped at random": ({"is_training": True, "color_jitter": None, "train_crop_mode": "rkrr", "interpolation": "random"}, [],
        (f"{LAST}, augment=[ResizeKeepRatio(224, random_scale_prob=0.5, random_scale_range=(0.8, 1.0), random_scale_area=True, "
        "random_aspect_prob=0.5, random_aspect_range=(0.9, 1.1111111111111112)), RandomCrop(224, pad_if_needed=True, padding_mode='reflect'), "
        "RandomHorizontalFlip()], interpolation=('bilinear', 'bicubic'))")),
    "squashed": ({"crop_mode": "squash", "interpolation": "bicubic"}, [],
        f"{LAST}, augment=[Resize((256, 256)), CenterCrop(224)], interpolation='bicubic')"),
    "prefetched": ({"use_prefetcher": True}, [], 
        "Image(dtype=torch.uint8, augment=[Resize(256), CenterCrop(224)], interpolation='bilinear')"),
    "policies": ({"is_training": True, "separate": True, "auto_augment": "rand-m9"},
        ["RandomResizedCropAndInterpolation", "RandomHorizontalFlip", "RandAugment"], ONLY_LAST),
}  # fmt: skip


@pytest.mark.parametrize("case", TIMM)
def test_timm(case):
    options, left, text = TIMM[case]
    pipeline = of_timm("create_transform", **{"input_size": (3, 224, 224)} | options)
    rest, image = split(pipeline)
    assert (kinds(rest), repr(image)) == (left, text)
    if not options.get("is_training"):
        waves = np.sin(np.add.outer(np.arange(300) / 9, np.arange(780) / 40)).reshape(300, 260, 3)
        pixels = (120 + 100 * waves).astype(np.uint8)
        expected = pipeline(pil(pixels)).float()
        unit = 1 if expected.max() > 30 else 1 / 255 / 0.22
        # Pillow rounds between rows and columns.
        torch.testing.assert_close(
            result(rest, image, pil(pixels)).float(), expected, rtol=0, atol=2.1 * unit
        )


def of_timm(name, *arguments, **options):
    module = {"RandomErasing": ".random_erasing", "create_transform": ""}.get(name, ".transforms")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its import of torchvision
        package = pytest.importorskip(f"timm.data{module}")
    return getattr(package, name)(*arguments, **options)


# A timm transform for an image of 48×36, and the compared statistic of its result.
RANDOM_OF_TIMM = {
    "crops or pads": (lambda: [of_timm("RandomCropOrPad", (40, 44), fill=7)], lambda image: (image[0, 22, 0], image[1, 0, 22])),
    "mirrors": (lambda: [of_timm("RandomCropOrPad", (52, 30), padding_mode="reflect")], lambda image: (image[0, 0, 15], image[1, 26, 0])),
    "keeps the ratio": (
        lambda: [of_timm("ResizeKeepRatio", 40, random_scale_prob=0.6, random_scale_area=True, random_aspect_prob=0.7, interpolation="nearest"),
            of_timm("CenterCropOrPad", (80, 80), fill=255)],
        lambda image: [(image[2] == 255).sum(axis).eq(0).sum() for axis in (0, 1)],
    ),
    "resized crops": (
        lambda: [of_timm("RandomResizedCropAndInterpolation", 8, scale=(0.1, 0.6), interpolation="nearest")],
        lambda image: (image[0, 0, 0], image[1, 0, 0], image[0, 7, 7], image[1, 7, 7]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RANDOM_OF_TIMM)
def test_distributions_of_timm(case):
    make, statistic = RANDOM_OF_TIMM[case]
    pipeline = transforms.Compose([*make(), transforms.PILToTensor()])
    rest, image = split(pipeline)
    assert is_nothing(rest)
    rows, columns = np.mgrid[:48, :36]
    sample = pil(np.stack([4 * rows, 5 * columns, 100 + 0 * rows], -1).astype(np.uint8))
    random.seed(0)
    reference = [[float(part) for part in statistic(pipeline(sample))] for _ in range(3000)]
    torch.manual_seed(0)
    batch = pinfeed.Collate(image)([sample] * 3000)
    values = [[float(part) for part in statistic(one)] for one in batch]
    assert_same_distributions(reference, values, 12)


def test_random_interpolation_of_timm():
    """About half of the images are bilinear, and half bicubic."""
    pipeline = transforms.Compose(
        [of_timm("ResizeKeepRatio", 8, interpolation="random"), transforms.PILToTensor()]
    )
    rest, image = split(pipeline)
    assert is_nothing(rest)
    assert image.interpolation == ("bilinear", "bicubic")
    sample = pil(PIXELS)
    random.seed(0)
    expected = torch.stack([pipeline(sample) for _ in range(400)])[:, 0].float()
    torch.manual_seed(0)
    actual = pinfeed.Collate(image)([sample] * 400)[:, 0].float()
    kinds = expected.unique(dim=0)
    assert len(kinds) == 2
    assert len(actual.unique(dim=0)) == 2
    shares = [
        (batch - kinds[0]).abs().amax((1, 2)).le(2).float().mean() for batch in (expected, actual)
    ]
    assert all(0.35 < share < 0.65 for share in shares)
