"""Like torchvision's references/classification: presets, and loops for training and evaluation."""

import numpy as np
import PIL.Image
import torch
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
