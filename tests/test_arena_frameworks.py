"""Batches from workers through the loops that others write: Trainer, accelerate, Lightning."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from pinfeed.arena import trainer

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas"),
    pytest.mark.filterwarnings("ignore"),  # theirs
]

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


def test_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    found = {}
    for workers in (0, 2):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, seed=1,
            dataloader_num_workers=workers, report_to=[], save_strategy="no", use_cpu=True,
            dataloader_persistent_workers=workers > 0, disable_tqdm=True,
        )  # fmt: skip
        model = Model()
        transformers.Trainer(
            model, arguments, data_collator=pinfeed.Collate(), train_dataset=SAMPLES
        ).train()
        assert model.in_arena == [workers > 0] * 16
        found[workers] = weights(model)
    assert found[0] == found[2]


def test_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")
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


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

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
