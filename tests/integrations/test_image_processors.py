"""pinfeed.Image.from_processor against transformers' own image processors."""

import importlib
import random

import numpy as np
import pytest
import torch

import pinfeed
from messages import check

pytest.importorskip("transformers")

FAMILIES = {
    "ViT": "vit",
    "DeiT": "deit",
    "Beit": "beit",
    "CLIP": "clip",
    "Siglip": "siglip",
    "Bit": "bit",
    "Segformer": "segformer",
    "ConvNext": "convnext",
    "Detr": "detr",
    "ConditionalDetr": "conditional_detr",
    "DeformableDetr": "deformable_detr",
}
BACKENDS = ["", "Pil"]


def processor_of(family, backend="", **settings):
    infix = "pil_" if backend else ""
    folder = FAMILIES[family]
    module = importlib.import_module(
        f"transformers.models.{folder}.image_processing_{infix}{folder}"
    )
    return getattr(module, f"{family}ImageProcessor{backend}")(**settings)


def photos(*sizes):
    """Smooth pictures, because Pillow rounds between rows and columns."""
    for height, width in sizes:
        rows, columns = np.arange(height)[:, None, None], np.arange(width)[:, None]
        waves = np.sin(rows / 17 + np.arange(3)) * np.cos(columns / 23 + np.arange(3))
        yield (127 + 100 * waves).astype(np.uint8)


SIZES = [(40, 61), (61, 40), (53, 53), (33, 129), (90, 35)]


def compare(family, backend, sizes=SIZES, **settings):
    processor = processor_of(family, backend, **settings)
    image = pinfeed.Image.from_processor(processor)
    names = vars(pinfeed) | vars(pinfeed.augment) | {"torch": torch}
    assert repr(eval(repr(image), names)) == repr(image)  # it can be pasted
    samples = [*photos(*sizes)]
    step = 1 / 255 / min(processor.image_std) if processor.do_normalize else 1 / 255
    step *= 1 if processor.do_rescale else 255
    for group in [samples] if image.pad_value is not None else [[sample] for sample in samples]:
        theirs = processor(group, return_tensors="pt")
        ours = pinfeed.Collate({"pixel_values": image.of("image")})(
            [{"image": sample} for sample in group]
        )
        found, expected = ours["pixel_values"].float(), theirs["pixel_values"].float()
        assert found.shape == expected.shape
        # torch resizes bilinear bytes in float32 where the CPU has AVX-512; Pillow rounds otherwise.
        levels = (found - expected).abs() / step
        assert levels.max() <= (2.02 if backend else 1.02)
        assert (levels > 1.02).float().mean() <= 2e-3
        assert ours.keys() == theirs.keys() - {"labels"}
        for key in ours.keys() - {"pixel_values"}:
            assert torch.equal(ours[key].long(), theirs[key].long())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_defaults(family, backend):
    sizes = SIZES if not family.endswith("Detr") else [(30, 40), (20, 61)]
    compare(family, backend, sizes)


@pytest.mark.parametrize("number", range(60))
def test_any_settings(number):
    draw = random.Random(number)
    family = draw.choice([*FAMILIES])
    edge = draw.randint(20, 60)
    sizes = [{"height": edge, "width": draw.randint(20, 60)}, {"shortest_edge": edge}]
    settings = {
        "resample": draw.choice([2, 3]),
        "do_rescale": draw.random() < 0.8,
        "do_normalize": draw.random() < 0.8,
        "image_mean": [0.4, 0.5, 0.6],
        "image_std": [0.2, 0.3, 0.4],
        "size": draw.choice(sizes),
    }
    if not settings["do_rescale"] and settings["do_normalize"]:
        settings |= {"image_mean": [100, 120, 130], "image_std": [50, 60, 70]}
    if family == "ConvNext":
        settings["size"] = {"shortest_edge": draw.choice([edge, 390])}
    elif family.endswith("Detr"):
        settings["size"] = {"shortest_edge": edge, "longest_edge": edge + draw.randint(1, 30)}
    elif family in ("DeiT", "CLIP", "Bit") or draw.random() < 0.5:
        least = min(settings["size"].values())
        crop = {"height": draw.randint(9, least), "width": draw.randint(9, least)}
        settings |= {"do_center_crop": True, "crop_size": crop}
    compare(family, draw.choice(BACKENDS), **settings)


def test_odd_rests_and_long_images():
    """Where transformers rounds otherwise than torchvision."""
    for size in [(32, 32 + spare) for spare in range(8)]:
        compare(
            "CLIP", "", [size], size={"shortest_edge": 32}, crop_size={"height": 29, "width": 29}
        )
    compare("CLIP", "", size={"height": 31, "width": 90}, crop_size={"height": 40, "width": 41})
    size = {"shortest_edge": 50, "longest_edge": 83}
    for number in range(200):
        draw = random.Random(number)
        height, width = draw.randint(10, 400), draw.randint(10, 400)
        image = pinfeed.Image.from_processor(processor_of("Detr", size=size))
        sample = np.zeros((height, width, 3), np.uint8)
        found = pinfeed.Collate({"pixel_values": image.of("image")})([{"image": sample}])
        sides = importlib.import_module("transformers.image_transforms")
        expected = sides.get_size_with_aspect_ratio((height, width), 50, 83)
        assert found["pixel_values"].shape[2:] == expected


def test_a_processor_that_has_one():
    class Processor:
        image_processor = processor_of("ViT")

    image = pinfeed.Image.from_processor(Processor(), dtype=torch.bfloat16)
    assert pinfeed.Collate(image)([*photos((30, 40))]).dtype == torch.bfloat16


def refused(family, **settings):
    return lambda: pinfeed.Image.from_processor(processor_of(family, **settings))


BAD = {
    "another kind": (lambda: pinfeed.Image.from_processor(object()), TypeError, "ViTImageProcessor", "got object"),
    "lanczos": (refused("ViT", resample=1), ValueError, "ViTImageProcessor has resample=", "bicubic"),
    "a crop that pads": (lambda: pinfeed.Image.from_processor(processor_of("CLIP", "Pil", size={"shortest_edge": 20})), ValueError, "has crop_size=", "not smaller than"),
    "a size to fit into": (refused("ViT", size={"max_height": 20, "max_width": 30}), ValueError, "has size=", "shortest_edge"),
    "crops of whole images": (refused("CLIP", do_resize=False), ValueError, "has do_resize=False"),
    "another library": (lambda: pinfeed.augment.CenterCrop(4, like="jax"), ValueError, "CenterCrop: like must be one of", "got 'jax'"),
    "rounding of another": (lambda: pinfeed.augment.Resize(4, like=None), ValueError, "Resize: like must be one of", "got None"),
    "padding to a size": (refused("Detr", pad_size={"height": 9, "width": 9}), ValueError, "has pad_size="),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_covered_is_refused_by_name(case):
    check(*BAD[case])
