"""Writes a model's outputs in parts, and skips the parts that exist."""

import os

import pinfeed
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

dataset = TensorDataset(torch.randn(10_000, 16))
model = torch.nn.Linear(16, 256)

os.makedirs("embeddings", exist_ok=True)
parts = []
for first in range(0, len(dataset), 4_000):
    parts.append(f"embeddings/{first:09}.npy")
    if not os.path.exists(parts[-1]):
        part = Subset(dataset, range(first, min(first + 4_000, len(dataset))))
        with torch.inference_mode():
            outputs = (model(x) for (x,) in DataLoader(part, batch_size=250))
            pinfeed.to_numpy(outputs, out=parts[-1])

embeddings = pinfeed.ConcatArray(parts)  # works like one array
print(len(embeddings), embeddings[0].shape)  # 10000 (256,)
