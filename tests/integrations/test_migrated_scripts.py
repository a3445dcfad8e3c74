"""Short versions of published training scripts, and the lines that change with pinfeed.

Trained weights are equal to the last bit, or as close as the transforms are.
"""

import warnings

import numpy as np
import pytest

from scripts import run_both

pytest.importorskip("transformers")
pytest.importorskip("torchvision")
pytest.importorskip("PIL")


def imported(collator):
    """Returns the change of a script that imports a collator from transformers."""
    return {
        f"from transformers import {collator}": f"from pinfeed.integrations.transformers import {collator}"
    }


CLASSIFICATION = {
    "from torch.utils.data.dataloader import default_collate": "import pinfeed",
    "collate = default_collate": "",
    "data = Folder(preset(24, is_training))": (
        "rest, image = pinfeed.Image.from_torchvision(preset(24, is_training))\n"
        "    data, collate = Folder(rest), pinfeed.Collate((image, None))"
    ),
}
IMAGES = {
    "import datasets\n": "import pinfeed, datasets\n",
    "dataset.set_transform(apply)": (
        "rest, image = pinfeed.Image.from_torchvision(train_transforms)\n"
        'fields = {"pixel_values": image.from_key("image"), "labels": pinfeed.Stack().from_key("label")}\n'
        "collate_fn = pinfeed.Collate(fields)"
    ),
}
WINDOWS = "torch.from_numpy(pinfeed.functional.gather(np.lib.stride_tricks.sliding_window_view"
GPT = {
    "import torch\n": "import pinfeed, torch\n",
    "torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])": (
        f"{WINDOWS}(data, block_size), ix, dtype=torch.int64))"
    ),
    "[torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix]": (
        f"[*{WINDOWS}(data[1:], block_size), ix, dtype=torch.int64))]"
    ),
}
TIMM = {
    "import PIL.Image\n": "import PIL.Image, pinfeed\n",
    "    color_jitter=None,\n": "    color_jitter=None, collate_fn=pinfeed.Collate(),\n",
    "    crop_pct=1,\n": "    crop_pct=1, collate_fn=pinfeed.Collate(),\n",
}
TIMM_CROPS = {
    "import PIL.Image\n": "import PIL.Image, pinfeed\n",
    "loader_eval = create_loader(": (
        "dataset_train.transform, image = pinfeed.Image.from_torchvision(dataset_train.transform)\n"
        "loader_train.loader.collate_fn = pinfeed.Collate((image, None))\n"
        "loader_eval = create_loader("
    ),
}

# Script, changes, maximum number of changed lines, and tolerance for weights.
SCRIPTS = {
    "presets": ("references_classification", CLASSIFICATION, 6, 1e-5),
    "a transform of the dataset": ("run_image_classification", IMAGES, 8, 1e-5),
    "padding": ("run_glue", imported("DataCollatorWithPadding"), 1, 0),
    "masking": ("run_mlm", imported("DataCollatorForLanguageModeling"), 1, 0),
    "labels of tokens": ("run_ner", imported("DataCollatorForTokenClassification"), 1, 0),
    "slices": ("nanogpt_train", GPT, 3, 0),
    "timm, Collate()": ("timm_train", TIMM, 3, 0),
    "timm, the crops": ("timm_train", TIMM_CROPS, 3, 0),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(name, tmp_path):
    if "timm" in name:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its import of torchvision
            pytest.importorskip("timm.loss")
    original, migrated = run_both(*SCRIPTS[name], tmp_path)
    if "evaluated" in original:
        assert np.abs(original["evaluated"].numpy() - migrated["evaluated"].numpy()).max() < 1e-6
