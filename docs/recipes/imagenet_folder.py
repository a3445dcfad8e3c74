"""Trains on JPEGs in one folder per class, with validation."""

from pathlib import Path

import numpy as np
import PIL.Image
import pinfeed
import torch
from pinfeed import augment
from torch import nn
from torch.utils.data import DataLoader

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageFolder(torch.utils.data.Dataset):
    """Images in root/CLASS/NAME.jpg; classes are sorted."""

    def __init__(self, root):
        self.classes = sorted(folder.name for folder in root.iterdir())
        paths, labels = [], []
        for label, name in enumerate(self.classes):
            found = sorted((root / name).glob("*.jpg"))
            paths += map(str, found)
            labels += [label] * len(found)
        # Not a list, which every forked worker copies.
        self.paths = pinfeed.RaggedArray.from_strings(paths)
        self.labels = np.array(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        with PIL.Image.open(self.paths[index]) as photo:
            return {"image": photo.convert("RGB"), "label": self.labels[index]}


def new_loader(root, transforms, *, is_training):
    """Returns the loader of a split, with batches on the GPU if there is one."""
    # IndexedDataset adds sample indices, from which Collate seeds augmentation.
    dataset = pinfeed.IndexedDataset(ImageFolder(root))
    image = pinfeed.Image(MEAN, STD, augment=transforms, channels_last=True)
    sampler = pinfeed.samplers.ShuffleSampler(
        dataset, 20, shuffle=is_training, drop_last=is_training, seed=0
    )
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=pinfeed.Collate({"image": image}, seed=0),
        num_workers=2,  # about one per CPU
        persistent_workers=True,
    )
    return pinfeed.DeviceLoader(loader)


def main():
    draw_some_images(Path("photos/train"), 60)
    draw_some_images(Path("photos/val"), 20)
    # for ImageNet: RandomResizedCrop(224); Resize(256), CenterCrop(224)
    train = [augment.RandomResizedCrop(64), augment.RandomHorizontalFlip()]
    test = [augment.Resize(73), augment.CenterCrop(64)]
    training = new_loader(Path("photos/train"), train, is_training=True)
    validation = new_loader(Path("photos/val"), test, is_training=False)

    torch.manual_seed(0)
    device = torch.accelerator.current_accelerator(True) or torch.device("cpu")
    model = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    ).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    for epoch in range(3):  # with a new order and new crops
        model.train()
        for batch in training:
            logits = model(batch["image"])
            loss = nn.functional.cross_entropy(logits, batch["label"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        hits = 0
        with torch.inference_mode():
            for batch in validation:
                predicted = model(batch["image"]).argmax(1)
                hits += int((predicted == batch["label"]).sum())
        accuracy = hits / len(validation.dataset)
        print(f"epoch {epoch}: loss {loss:.2f}, accuracy {accuracy:.0%}")
    print(f"final accuracy {accuracy:.0%}")  # final accuracy 100%


def draw_some_images(root, count):
    """Writes a stand-in for ImageNet: root/CLASS/NAME.jpg, of different sizes."""
    rng = np.random.default_rng(count)
    for label, color in {"blue": (20, 60, 220), "red": (220, 40, 40)}.items():
        (root / label).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            noise = rng.integers(-20, 20, (*rng.integers(80, 160, 2), 3))
            pixels = (np.array(color) + noise).clip(0, 255).astype(np.uint8)
            PIL.Image.fromarray(pixels).save(root / label / f"{i}.jpg")


if __name__ == "__main__":
    main()
