"""A small model that notes whether its batches lie in the arena."""

from __future__ import annotations

import numpy as np
import torch

from pinfeed.memory import trainer

SAMPLES = [{"x": np.full(600, i, np.float32), "labels": i % 2} for i in range(32)]


class Model(torch.nn.Module):
    """Notes where its batches were."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(600, 1)
        self.in_arena: list[bool] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        arena = trainer.own_arena()
        self.in_arena.append(arena is not None and arena.contains(x.data_ptr()))
        assert torch.equal(x[:, 0].long() % 2, labels)
        return {"loss": (self.layer(x / 32)[:, 0] - labels).square().mean()}


def weights(model: Model) -> list[float]:
    return model.layer.weight.detach()[0, :5].tolist()
