"""Batches from workers through the loops that others write: Trainer and accelerate."""

from __future__ import annotations

import sys
from pathlib import Path

import accelerate
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import pinfeed
from arena_model import SAMPLES, Model, weights

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has arenas"),
    pytest.mark.filterwarnings("ignore"),  # theirs
]


def test_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
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
