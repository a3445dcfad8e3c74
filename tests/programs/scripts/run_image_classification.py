"""Like transformers' run_image_classification.py: a transform set on the dataset, and a collate_fn."""

import datasets
import numpy as np
import torch
import transformers
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
    ".",
    num_train_epochs=2,
    use_cpu=True,
    report_to="none",
    save_strategy="no",
    remove_unused_columns=False,
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
trainer = transformers.Trainer(model, arguments, collate_fn, dataset)
trainer.train()
weights = [*model.parameters()]
