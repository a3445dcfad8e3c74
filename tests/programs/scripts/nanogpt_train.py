"""Like nanoGPT's train.py: random slices of a token file."""

import os

import numpy as np
import torch

block_size, batch_size, data_dir = 16, 4, "."
for split in ("train", "val"):
    tokens = np.random.default_rng(len(split)).integers(0, 50, 500).astype(np.uint16)
    tokens.tofile(os.path.join(data_dir, f"{split}.bin"))


def get_batch(split):
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack(
        [torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix]
    )
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
