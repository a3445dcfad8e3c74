"""A sequence model for Lightning that records its batches; as a program, one of two ranks.

``python lightning_model.py STRATEGY FOLDER SAMPLER...`` writes a file per sampler and rank.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import torchvision_operators  # noqa: F401

# isort: split
import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import pinfeed

ROWS, EPOCHS = 101, 2

rng = np.random.default_rng(0)
TOKENS = [rng.integers(1, 100, length) for length in rng.integers(1, 40, ROWS)]
TEXTS = pinfeed.RaggedArray.from_sequences(TOKENS)
DATASET = pinfeed.ArrayDataset({"id": np.arange(ROWS), "tokens": TEXTS})
COLLATE = pinfeed.Collate({"tokens": pinfeed.Pad(lengths="lengths")})


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 4, padding_idx=0)
        self.output = torch.nn.Linear(4, 1)
        self.seen = []  # epoch and batch

    def training_step(self, batch, number):
        self.seen.append((self.current_epoch, batch))
        sums = self.embedding(batch["tokens"]).sum(1)
        return (self.output(sums).squeeze(1) - batch["lengths"]).square().mean()

    def predict_step(self, batch, batch_idx):
        return batch["id"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)


def train(loader, kind=Model, **options):
    torch.manual_seed(0)
    model = kind()
    checkpoint = options.pop("ckpt_path", None)
    defaults = {
        "accelerator": "cpu",
        "max_epochs": EPOCHS,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(**defaults | options)
    trainer.fit(model, loader, ckpt_path=checkpoint)
    return model


def loader_of(sampler, **options):
    """Returns a loader by name: with Lightning's sampler, or with a pinfeed sampler, which shards its samples."""
    if sampler == "from_numpy":
        fields = {"tokens": pinfeed.Pad(lengths="lengths")}
        arrays = {"id": np.arange(ROWS), "tokens": TEXTS}
        return pinfeed.from_numpy(arrays, 8, shuffle=True, fields=fields, device="cpu", **options)
    if sampler == "DeviceLoader":
        ranks = {"rank": int(os.environ["RANK"]), "num_replicas": int(os.environ["WORLD_SIZE"])}
        own = DistributedSampler(DATASET, **ranks)
        return pinfeed.DeviceLoader(DataLoader(DATASET, 8, sampler=own, collate_fn=COLLATE), "cpu")
    if sampler == "DistributedSampler":
        return DataLoader(DATASET, batch_size=8, shuffle=True, collate_fn=COLLATE)
    buckets = pinfeed.samplers.LengthBucketSampler(TEXTS, max_tokens=200)
    return DataLoader(DATASET, batch_sampler=buckets, collate_fn=COLLATE)


def streamed(workers=0, buffer=0, **ranks):
    samples = [{"id": i, "tokens": TOKENS[i]} for i in range(96)]
    shards = [samples[start : start + 8] for start in range(0, 96, 8)]
    stream = pinfeed.StreamDataset(shards, buffer, open_shard=iter, uneven="drop", **ranks)
    return StatefulDataLoader(stream, 8, collate_fn=COLLATE, num_workers=workers)


class Save(lightning.Callback):
    def __init__(self, folder, name):
        self.folder, self.name = folder, name

    def on_train_end(self, trainer, model):
        weights = [parameter.detach() for parameter in model.parameters()]
        path = Path(self.folder, f"{self.name}.{trainer.global_rank}")
        torch.save((model.seen, weights), path)


if __name__ == "__main__":
    strategy, folder, *samplers = sys.argv[1:]
    for sampler in samplers:
        train(
            loader_of(sampler),  # for the first one, before ranks exist
            strategy=strategy,
            devices=2,
            callbacks=[Save(folder, sampler)],
            use_distributed_sampler=sampler == "DistributedSampler",
        )
    if torch.distributed.is_initialized():  # gloo's threads abort a process that exits without this
        torch.distributed.destroy_process_group()
