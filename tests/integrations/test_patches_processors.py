"""pinfeed.Patches.from_processor compared with transformers' image processors, built from settings."""

import importlib

import numpy as np
import pytest
import torch

import pinfeed
from messages import check
from programs import run_program

pytest.importorskip("transformers")

SMALL = {"size": {"shortest_edge": 56 * 56, "longest_edge": 200 * 200}}
PROCESSORS = {
    "qwen2_vl Qwen2VL": SMALL,
    "qwen2_vl Qwen2VL ": {"patch_size": 16, "temporal_patch_size": 1, "image_mean": [0.5] * 3}
    | SMALL,
    "minimax_m3_vl MiniMaxM3VL": SMALL,
    "video_llama_3 VideoLlama3": SMALL,
    "ernie4_5_vl_moe Ernie4_5_VLMoe": SMALL,
    "hunyuan_vl HunYuanVL": SMALL,
    "hy_v4_vl HYV4VL": SMALL,
    "glm4v Glm4v": SMALL,
    "glm46v Glm46V": SMALL,
    "siglip2 Siglip2": {"max_num_patches": 64},
}


def images():
    rng = np.random.default_rng(0)
    sizes = [(28, 28), (56, 112), (84, 56), (60, 700), (2000, 333)]
    sizes += [tuple(size) for size in rng.integers(60, 900, (4, 2))]
    return [np.kron(rng.integers(0, 256, (4, 4, 3)), np.ones((h // 4 + 1, w // 4 + 1, 1)))[:h, :w]
            .astype(np.uint8) for h, w in sizes]  # fmt: skip


def compare(module, name, settings, suffix, tolerance):
    """Asserts that grids are equal, and that values are, in steps of a byte, except for a few of PIL's."""
    infix = "pil_" if suffix == "Pil" else ""
    path = f"transformers.models.{module}.image_processing_{infix}{module}"
    processor = getattr(importlib.import_module(path), f"{name}ImageProcessor{suffix}")(**settings)
    field = pinfeed.Patches.from_processor(processor)
    photos = [image for image in images() if min(image.shape[:2]) >= field.min_side]
    expected = processor(photos, return_tensors="pt")
    batch = pinfeed.Collate({"pixel_values": field.from_key("image")})(
        [{"image": image} for image in photos]
    )
    for key in batch.keys() - {"pixel_values"}:
        assert torch.equal(batch[key].long(), expected[key].long()), key
    step = 1 / 255 / min(processor.image_std)
    assert batch["pixel_values"].shape == expected["pixel_values"].shape
    difference = (batch["pixel_values"] - expected["pixel_values"]).abs() / step
    beyond = float((difference > tolerance).float().mean())
    assert beyond <= (1e-4 if suffix else 0), (name, beyond, float(difference.max()))
    assert difference.max() < 10


@pytest.mark.parametrize("label", [label for label in PROCESSORS if "MiniMax" not in label])
def test_values_equal_processors_that_resize_with_pil(label):
    module, name = label.split()
    compare(module, name, PROCESSORS[label], "Pil", 1.01)


def test_bytes_equal_processors_that_resize_with_torch():
    printed = run_program("processors_that_resize_with_torch")
    assert printed.split("\n")[:-1] == list(PROCESSORS)


def processor_of(label, **settings):
    module, name = label.split()
    path = f"transformers.models.{module}.image_processing_pil_{module}"
    return getattr(importlib.import_module(path), f"{name}ImageProcessorPil")(**settings)


def test_unsupported_settings_are_named():
    make = pinfeed.Patches.from_processor
    check(lambda: make(object()), TypeError, "Qwen2VLImageProcessor", "got object")
    processor = processor_of("qwen2_vl Qwen2VL", resample=1)
    check(
        lambda: make(processor),
        ValueError,
        "resample of Qwen2VLImageProcessorPil must be",
        "bicubic",
    )
    processor = processor_of("glm4v Glm4v", temporal_patch_size=3)
    check(lambda: make(processor), ValueError, "temporal_patch_size of", "got 3", "powers of 2")


def test_settings_that_disable_steps():
    processor = processor_of(
        "qwen2_vl Qwen2VL", do_resize=False, do_rescale=False, do_normalize=False
    )
    field = pinfeed.Patches.from_processor(processor, grid=False, dtype=torch.bfloat16)
    assert field.max_pixels is None
    image = images()[1]
    assert pinfeed.Collate(field)([image]).dtype == torch.bfloat16
    assert pinfeed.Collate(field)([image]).max() == image.max()
