"""Short versions of published training scripts, and the lines that change with pinfeed.

Trained weights are equal to the last bit, or as close as the transforms are.
"""

import warnings

import numpy as np
import pytest

from scripts import run_both

transformers = pytest.importorskip("transformers")
pytest.importorskip("torchvision")
pytest.importorskip("PIL")

# Like torchvision's references/classification: presets, and loops for training and evaluation.
CLASSIFICATION = """
    import PIL.Image, numpy as np, torch
    from torch.utils.data import DataLoader, Dataset
    from torch.utils.data.dataloader import default_collate
    from torchvision.transforms import v2 as T

    class Folder(Dataset):
        def __init__(self, transform):
            self.transform = transform

        def __len__(self):
            return 12

        def __getitem__(self, index):
            rng = np.random.default_rng(index)
            image = PIL.Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8))
            return (self.transform(image) if self.transform else image), index % 3

    def preset(size, is_training):
        first = [T.RandomCrop(30), T.RandomHorizontalFlip(0)] if is_training else [T.CenterCrop(size)]
        end = [T.PILToTensor(), T.ToDtype(torch.float, scale=True)]
        end += [T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), T.ToPureTensor()]
        return T.Compose([*first, T.CenterCrop(24), *end])

    collate = default_collate
    loaders = []
    for is_training in (True, False):
        data = Folder(preset(24, is_training))
        loaders.append(DataLoader(data, 4, collate_fn=collate))

    def train(loader, model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for image, target in loader:
            loss = torch.nn.functional.cross_entropy(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 24 * 24, 3))
    evaluated = torch.cat([image for image, target in loaders[1]])
    train(loaders[1], model)
    weights = [*model.parameters()]
"""
CLASSIFICATION_CHANGES = {
    "from torch.utils.data.dataloader import default_collate": "import pinfeed",
    "collate = default_collate": "",
    "data = Folder(preset(24, is_training))": (
        "rest, image = pinfeed.Image.from_torchvision(preset(24, is_training))\n"
        "        data, collate = Folder(rest), pinfeed.Collate((image, None))"
    ),
}

# Like transformers' run_image_classification.py: a transform set on the dataset, and a collate_fn.
IMAGES = """
    import datasets, numpy as np, torch, transformers
    from torchvision.transforms import CenterCrop, Compose, Normalize, ToTensor

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (12, 24, 20, 3), np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    columns = {"image": [datasets.Image().encode_example(one) for one in pixels], "label": [0, 1] * 6}
    dataset = datasets.Dataset.from_dict(columns, features=features)

    def collate_fn(examples):
        pixel_values = torch.stack([example["pixel_values"] for example in examples])
        labels = torch.tensor([example["label"] for example in examples])
        return {"pixel_values": pixel_values, "labels": labels}

    train_transforms = Compose([CenterCrop(16), ToTensor(), Normalize((0.5,), (0.5,))])

    def apply(batch):
        batch["pixel_values"] = [train_transforms(image.convert("RGB")) for image in batch["image"]]
        return batch

    dataset.set_transform(apply)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.ViTConfig(**sizes, num_attention_heads=2, image_size=16, patch_size=8)
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config)
    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=2, use_cpu=True, report_to="none", save_strategy="no",
        remove_unused_columns=False, disable_tqdm=True, dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(model, arguments, collate_fn, dataset)
    trainer.train()
    weights = [*model.parameters()]
"""
IMAGES_CHANGES = {
    "import datasets,": "import pinfeed, datasets,",
    "dataset.set_transform(apply)": (
        "rest, image = pinfeed.Image.from_torchvision(train_transforms)\n"
        '    fields = {"pixel_values": image.from_key("image"), "labels": pinfeed.Stack().from_key("label")}\n'
        "    collate_fn = pinfeed.Collate(fields)"
    ),
}

# The common end of transformers' scripts.
TRAIN = """
    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=2, use_cpu=True, report_to="none", save_strategy="no",
        disable_tqdm=True, dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(model, arguments, collator, dataset)
    trainer.train()
    weights = [*model.parameters()]
"""

# Like transformers' run_glue.py.
GLUE = """
    import datasets, torch, transformers
    from transformers import DataCollatorWithPadding

    tokenizer = transformers.ByT5Tokenizer()
    texts = ["a", "some text", "more text than that", "b"] * 3
    dataset = datasets.Dataset.from_dict({"text": texts, "label": [0, 1] * 6})
    dataset = dataset.map(lambda sample: tokenizer(sample["text"]))
    collator = DataCollatorWithPadding(tokenizer)
    sizes = {"vocab_size": 384, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(**sizes, num_attention_heads=2)
    )
"""
GLUE_CHANGES = {
    "from transformers import DataCollatorWithPadding": (
        "from pinfeed.integrations.transformers import DataCollatorWithPadding"
    )
}

# Like transformers' run_mlm.py: texts in blocks of one length, masked per batch.
MLM = """
    import datasets, torch, transformers
    from transformers import DataCollatorForLanguageModeling

    tokenizer = transformers.ByT5Tokenizer(mask_token="<extra_id_0>")
    texts = ["a", "some text", "more text than that", "b"] * 3
    dataset = datasets.Dataset.from_dict({"text": texts})
    tokenize = lambda sample: tokenizer(sample["text"], return_special_tokens_mask=True)
    dataset = dataset.map(tokenize, remove_columns="text")
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4, pad_to_multiple_of=8)
    sizes = {"vocab_size": 384, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, num_attention_heads=2))
"""
MLM_CHANGES = {
    "from transformers import DataCollatorForLanguageModeling": (
        "from pinfeed.integrations.transformers import DataCollatorForLanguageModeling"
    )
}

# Like transformers' run_ner.py: a label for the first token of each word.
NER = """
    import datasets, torch, transformers
    from transformers import DataCollatorForTokenClassification

    tokenizer = transformers.ByT5Tokenizer()
    words = [["Ada", "wrote", "it"], ["in", "London"], ["a"], ["by", "hand", "and", "ink"]] * 3
    tags = [[1, 0, 0], [0, 2], [0], [0, 0, 0, 0]] * 3
    dataset = datasets.Dataset.from_dict({"words": words, "tags": tags})

    def tokenize_and_align_labels(sample):
        ids, labels = [], []
        for word, tag in zip(sample["words"], sample["tags"]):
            tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
            ids += tokens
            labels += [tag] + [-100] * (len(tokens) - 1)
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    dataset = dataset.map(tokenize_and_align_labels, remove_columns=["words", "tags"])
    sizes = {"vocab_size": 384, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    torch.manual_seed(0)
    model = transformers.BertForTokenClassification(
        transformers.BertConfig(**sizes, num_attention_heads=2, num_labels=3)
    )
    collator = DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=8)
"""
NER_CHANGES = {
    "from transformers import DataCollatorForTokenClassification": (
        "from pinfeed.integrations.transformers import DataCollatorForTokenClassification"
    )
}

# Like nanoGPT's train.py: random slices of a token file.
GPT = """
    import os
    import numpy as np
    import torch

    block_size, batch_size, data_dir = 16, 4, folder
    for split in ("train", "val"):
        tokens = np.random.default_rng(len(split)).integers(0, 50, 500).astype(np.uint16)
        tokens.tofile(os.path.join(data_dir, f"{split}.bin"))

    def get_batch(split):
        data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - block_size, (batch_size,))
        x = torch.stack([torch.from_numpy((data[i:i+block_size]).astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy((data[i+1:i+1+block_size]).astype(np.int64)) for i in ix])
        return x, y

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(10):
        X, Y = get_batch("train" if step < 8 else "val")
        loss = torch.nn.functional.cross_entropy(model(X).view(-1, 50), Y.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    weights = [*model.parameters(), *losses]
"""
WINDOWS = "np.lib.stride_tricks.sliding_window_view"
GPT_CHANGES = {
    "import torch\n": "import pinfeed, torch\n",
    "torch.stack([torch.from_numpy((data[i:i+block_size]).astype(np.int64)) for i in ix])": (
        f"torch.from_numpy(pinfeed.functional.gather({WINDOWS}(data, block_size), ix, dtype=torch.int64))"
    ),
    "torch.stack([torch.from_numpy((data[i+1:i+1+block_size]).astype(np.int64)) for i in ix])": (
        f"torch.from_numpy(pinfeed.functional.gather({WINDOWS}(data[1:], block_size), ix, dtype=torch.int64))"
    ),
}

# Like timm's train.py, whose loader creates the transforms; they draw nothing here.
TIMM = """
    import io
    import numpy as np
    import PIL.Image
    import torch
    from timm.data import ImageDataset, create_loader
    from timm.loss import LabelSmoothingCrossEntropy

    class Reader:
        def __init__(self, size):
            self.size = size

        def __len__(self):
            return 12

        def __getitem__(self, index):
            pixels = np.random.default_rng(index).integers(0, 256, (self.size, 36, 3), np.uint8)
            file = io.BytesIO()
            PIL.Image.fromarray(pixels).save(file, "PNG")
            return file, index % 3

    data_config = {"input_size": (3, 36, 36), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.25)}
    dataset_train, dataset_eval = (ImageDataset("", Reader(size)) for size in (36, 44))
    common = {"batch_size": 4, "num_workers": 0, "device": torch.device("cpu"), **data_config}
    loader_train = create_loader(
        dataset_train,
        is_training=True,
        scale=(1, 1),
        ratio=(1, 1),
        hflip=1,
        color_jitter=None,
        **common,
    )
    loader_eval = create_loader(
        dataset_eval,
        is_training=False,
        crop_pct=1,
        **common,
    )

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 36 * 36, 3))
    optimizer, loss_fn, losses = torch.optim.SGD(model.parameters(), 0.01), LabelSmoothingCrossEntropy(), []
    for epoch in range(2):
        torch.manual_seed(epoch)
        for input, target in loader_train:
            loss = loss_fn(model(input), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        with torch.no_grad():
            losses += [loss_fn(model(input), target) for input, target in loader_eval]
    weights = [*model.parameters(), *losses]
"""
TIMM_CHANGES = {
    "import PIL.Image\n": "import PIL.Image, pinfeed\n",
    "        color_jitter=None,\n": "        color_jitter=None, collate_fn=pinfeed.Collate(),\n",
    "        crop_pct=1,\n": "        crop_pct=1, collate_fn=pinfeed.Collate(),\n",
}
TIMM_CROPS = {
    "import PIL.Image\n": "import PIL.Image, pinfeed\n",
    "    loader_eval = create_loader(": (
        "    dataset_train.transform, image = pinfeed.Image.from_torchvision(dataset_train.transform)\n"
        "    loader_train.loader.collate_fn = pinfeed.Collate((image, None))\n"
        "    loader_eval = create_loader("
    ),
}

# Script, changes, maximum number of changed lines, and tolerance for weights.
SCRIPTS = {
    "references/classification": (CLASSIFICATION, CLASSIFICATION_CHANGES, 6, 1e-5),
    "run_image_classification.py": (IMAGES, IMAGES_CHANGES, 8, 1e-5),
    "run_glue.py": (GLUE + TRAIN, GLUE_CHANGES, 1, 0),
    "run_mlm.py": (MLM + TRAIN, MLM_CHANGES, 1, 0),
    "run_ner.py": (NER + TRAIN, NER_CHANGES, 1, 0),
    "nanoGPT": (GPT, GPT_CHANGES, 3, 0),
    "timm's train.py, Collate()": (TIMM, TIMM_CHANGES, 3, 0),
    "timm's train.py, the crops": (TIMM, TIMM_CROPS, 3, 0),
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
