"""pinfeed.Image.from_processor compared with transformers' image processors."""

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
    """Returns smooth images, because Pillow rounds between rows and columns."""
    for height, width in sizes:
        rows, columns = np.arange(height)[:, None, None], np.arange(width)[:, None]
        waves = np.sin(rows / 17 + np.arange(3)) * np.cos(columns / 23 + np.arange(3))
        yield (127 + 100 * waves).astype(np.uint8)


SIZES = [(40, 61), (61, 40), (53, 53), (33, 129), (90, 35)]


def compare(family, backend, sizes=SIZES, **settings):
    processor = processor_of(family, backend, **settings)
    image = pinfeed.Image.from_processor(processor)
    names = vars(pinfeed) | vars(pinfeed.augment) | {"torch": torch}
    assert repr(eval(repr(image), names)) == repr(image)  # the repr evaluates
    samples = [*photos(*sizes)]
    step = 1 / 255 / min(processor.image_std) if processor.do_normalize else 1 / 255
    step *= 1 if processor.do_rescale else 255
    for group in [samples] if image.pad_value is not None else [[sample] for sample in samples]:
        processed = processor(group, return_tensors="pt")
        batch = pinfeed.Collate({"pixel_values": image.from_key("image")})(
            [{"image": sample} for sample in group]
        )
        actual, expected = batch["pixel_values"].float(), processed["pixel_values"].float()
        assert actual.shape == expected.shape
        # torch resizes bilinear bytes in float32 on CPUs with AVX-512; Pillow rounds differently.
        levels = (actual - expected).abs() / step
        assert levels.max() <= (2.02 if backend else 1.02)
        assert (levels > 1.02).float().mean() <= 2e-3
        assert batch.keys() == processed.keys() - {"labels"}
        for key in batch.keys() - {"pixel_values"}:
            assert torch.equal(batch[key].long(), processed[key].long())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_defaults(family, backend):
    sizes = SIZES if not family.endswith("Detr") else [(30, 40), (20, 61)]
    compare(family, backend, sizes)


@pytest.mark.parametrize("number", range(60))
def test_any_settings(number):
    draw = random.Random(number)
    family, backend = draw.choice([*FAMILIES]), draw.choice(BACKENDS)
    edge = draw.randint(20, 60)
    sizes = [{"height": edge, "width": draw.randint(20, 60)}, {"shortest_edge": edge}]
    settings = {
        # If centers lie between two pixels, Pillow's nearest accumulates rounding errors.
        "resample": draw.choice([2, 3] if backend else [0, 2, 3]),
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
    compare(family, backend, **settings)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("resample", [0, 2, 3])
def test_images_of_noise(backend, resample):
    """Smooth images could hide wrong weights of a resize."""
    noise = np.random.default_rng(0).integers(0, 256, (97, 143, 3), np.uint8)
    for size in ({"height": 40, "width": 61}, {"height": 150, "width": 160}):
        processor = processor_of("ViT", backend, size=size, resample=resample, do_normalize=False)
        expected = processor([noise], return_tensors="pt")["pixel_values"]
        actual = pinfeed.Collate(pinfeed.Image.from_processor(processor))([noise])
        levels = (actual - expected).abs() * 255
        assert levels.max() <= 1.02


@pytest.mark.parametrize("do_normalize", [False, True])
def test_floats_that_are_not_rescaled(do_normalize):
    processor = processor_of("ViT", "", do_rescale=False, do_normalize=do_normalize)
    image = pinfeed.Image.from_processor(processor, dtype=torch.float32)
    sample = next(photos((53, 61))).astype(np.float32) / 255
    expected = processor([sample], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(pinfeed.Collate(image)([sample]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", range(8))
def test_segmentation_maps(backend, number):
    draw = random.Random(number)
    settings = {
        "do_reduce_labels": draw.random() < 0.6,
        "do_resize": draw.random() < 0.8,
        "size": {"height": draw.randint(20, 90), "width": draw.randint(20, 90)},
    }
    processor = processor_of("Segformer", backend, **settings)
    rng = np.random.default_rng(number)
    images = rng.integers(0, 256, (2, 61, 47, 3), np.uint8)
    maps = rng.choice(np.array([0, 1, 2, 7, 149, 150, 254, 255], np.uint8), (2, 61, 47))
    expected = processor([*images], segmentation_maps=[*maps], return_tensors="pt")
    fields = {
        "pixel_values": pinfeed.Image.from_processor(processor).from_key("image"),
        "labels": pinfeed.Mask.from_processor(processor).from_key("map"),
    }
    samples = [{"image": image, "map": one} for image, one in zip(images, maps, strict=True)]
    actual = pinfeed.Collate(fields)(samples)
    assert actual["pixel_values"].shape == expected["pixel_values"].shape
    assert torch.equal(actual["labels"], expected["labels"].long())
    names = vars(pinfeed) | vars(pinfeed.augment) | {"torch": torch}
    mask = pinfeed.Mask.from_processor(processor)
    assert repr(eval(repr(mask), names)) == repr(mask)
    followed = pinfeed.Mask(reduce_labels=settings["do_reduce_labels"]).from_key("map")
    assert torch.equal(
        pinfeed.Collate(fields | {"labels": followed})(samples)["labels"], actual["labels"]
    )
    if not settings["do_resize"]:
        for device in ("cpu", "meta"):
            batch = pinfeed.Mask(reduce_labels=settings["do_reduce_labels"]).apply(
                torch.from_numpy(maps).to(device), None, pinfeed.FieldContext("entry")
            )
            assert batch.shape == actual["labels"].shape
        small = pinfeed.Mask(
            reduce_labels=settings["do_reduce_labels"], dtype="uint8", sizes=True, pad_value=255
        )
        assert torch.equal(pinfeed.Collate(small)([*maps]).values.long(), actual["labels"])


def test_odd_rests_and_long_images():
    """Transformers rounds these differently from torchvision."""
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
        actual = pinfeed.Collate({"pixel_values": image.from_key("image")})([{"image": sample}])
        sides = importlib.import_module("transformers.image_transforms")
        expected = sides.get_size_with_aspect_ratio((height, width), 50, 83)
        assert actual["pixel_values"].shape[2:] == expected


def test_a_processor_with_an_image_processor():
    class Processor:
        image_processor = processor_of("ViT")

    image = pinfeed.Image.from_processor(Processor(), dtype=torch.bfloat16)
    assert pinfeed.Collate(image)([*photos((30, 40))]).dtype == torch.bfloat16


def refused(family, **settings):
    return lambda: pinfeed.Image.from_processor(processor_of(family, **settings))


BAD = {
    "bytes that are not rescaled": (lambda: pinfeed.Collate(refused("CLIP", do_rescale=False)())([*photos((53, 61))]), ValueError, "leave scale out (do_rescale=False of a processor sets it)"),
    "another view": (lambda: pinfeed.Image.from_processor(processor_of("ViT"), augment=pinfeed.augment.RandomHorizontalFlip()), TypeError, "augment follows from the processor", "write the field as Image(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), augment=Resize((224, 224))) with another augment"),
    "another kind": (lambda: pinfeed.Image.from_processor(object()), TypeError, "ViTImageProcessor", "got object"),
    "lanczos": (refused("ViT", resample=1), ValueError, "resample of ViTImageProcessor must be", "bicubic"),
    "a crop that pads": (lambda: pinfeed.Image.from_processor(processor_of("CLIP", "Pil", size={"shortest_edge": 20})), ValueError, "crop_size of", "crops of at most size="),
    "a size to fit into": (refused("ViT", size={"max_height": 20, "max_width": 30}), ValueError, "size of ViTImageProcessor must be", "shortest_edge"),
    "crops of whole images": (refused("CLIP", do_resize=False), ValueError, "do_resize of", "got False"),
    "another library": (lambda: pinfeed.augment.CenterCrop(4, like="jax"), ValueError, "CenterCrop: like must be one of", "got 'jax'"),
    "rounding of another": (lambda: pinfeed.augment.Resize(4, like=None), ValueError, "Resize: like must be one of", "got None"),
    "colors that change places": (refused("ViT", do_flip_channel_order=True), ValueError, "do_flip_channel_order of ViTImageProcessor must be", "got True"),
    "channels last": (refused("ViT", data_format="channels_last"), ValueError, "data_format of ViTImageProcessor must be"),
    "masks of another kind": (lambda: pinfeed.Mask.from_processor(processor_of("ViT")), TypeError, "must be one of SegformerImageProcessor, or have one", "got ViTImageProcessor"),
    "labels that are reduced, and another fill": (lambda: pinfeed.Mask(reduce_labels=True, fill=0), ValueError, "Mask: fill must be 255"),
    "padding to a size": (refused("Detr", pad_size={"height": 9, "width": 9}), ValueError, "pad_size of"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_unsupported_settings_are_named(case):
    check(*BAD[case])
