"""Batches from workers through a loop that others write: accelerate."""

from __future__ import annotations

import sys

import accelerate
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from arena_model import SAMPLES, Model, weights

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas"),
    pytest.mark.filterwarnings("ignore"),  # its own
]


def test_accelerate() -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    found = {}
    for workers in (0, 2):
        model = Model()
        loader = DataLoader(SAMPLES, 4, num_workers=workers, collate_fn=pinfeed.Collate())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        wrapped, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for _ in range(2):
            for batch in loader:
                accelerator.backward(wrapped(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
        assert model.in_arena == [workers > 0] * 16
        found[workers] = weights(model)
    assert found[0] == found[2]
