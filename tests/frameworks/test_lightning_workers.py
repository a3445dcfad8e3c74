"""Batches from workers through the loop of Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from arena_model import SAMPLES, Model, weights

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


def test_lightning(tmp_path: Path) -> None:
    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return self.model(**batch)["loss"]

        validation_step = training_step

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    found = {}
    for workers in (0, 2):
        options: dict[str, Any] = {"collate_fn": pinfeed.Collate(), "num_workers": workers}
        options["persistent_workers"] = workers > 0
        module = Module()
        lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, default_root_dir=tmp_path,
        ).fit(module, DataLoader(SAMPLES, 4, **options), DataLoader(SAMPLES, 4, **options))  # fmt: skip
        assert all(where == (workers > 0) for where in module.model.in_arena)
        assert len(module.model.in_arena) >= 32
        found[workers] = weights(module.model)
    assert found[0] == found[2]
