"""Like timm's train.py, whose loader creates the transforms; they draw nothing here."""

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
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loss_fn, losses = LabelSmoothingCrossEntropy(), []
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
